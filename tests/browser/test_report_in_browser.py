"""The report of `tensorferry bench` in a real browser: it is drawn, asks for nothing, and obeys."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from support.browser import chromium, look, messages, requests
from support.results import PAGES

from tensorferry import report

Opener = Callable[..., webdriver.Chrome]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    paths = {name: folder / f"{name.replace(' ', '-')}.html" for name in PAGES}
    for name, path in paths.items():
        report.write(PAGES[name](), path)
    return paths


@pytest.fixture
def show(browser: webdriver.Chrome, files: dict[str, Path]) -> Iterator[Opener]:
    """Opens a page; when the test is over, the console must have been told nothing."""
    messages(browser)

    def open_page(name: str = "sample", **looks: object) -> webdriver.Chrome:
        look(browser, **looks)
        # From another address, so that the page is new, however little its address changes.
        browser.get("about:blank")
        requests(browser)
        browser.get(files[name].as_uri())
        return browser

    yield open_page
    assert messages(browser) == []


def every(browser: webdriver.Chrome | WebElement, selector: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def shown(browser: webdriver.Chrome | WebElement, selector: str) -> list[WebElement]:
    return [found for found in every(browser, selector) if found.is_displayed()]


def press(browser: webdriver.Chrome, *keys: str) -> None:
    ActionChains(browser, duration=0).send_keys(*keys).perform()


def style(element: WebElement, name: str) -> str:
    return element.value_of_css_property(name)


# It is drawn


@pytest.mark.parametrize("page", PAGES)
def test_every_measurement_is_drawn_twice(show, page):
    browser = show(page)
    drawn = sum(row["error"] is None for row in PAGES[page]()["rows"])
    assert len(every(browser, ".plot .mark")) == 2 * drawn
    outside = browser.execute_script(
        """
        return [...document.querySelectorAll(".plot .sign")].filter(sign => {
          const mark = sign.getBoundingClientRect();
          const plot = sign.closest(".plot").getBoundingClientRect();
          return !(mark.width > 4 && mark.height > 4 && mark.left > plot.left
            && mark.right < plot.right && mark.top > plot.top && mark.bottom < plot.bottom);
        }).length;
        """
    )
    assert outside == 0


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_never_scrolls_sideways(show, page, width):
    browser = show(page, width=width)
    for summary in every(browser, "summary"):
        browser.execute_script("arguments[0].click()", summary)
    wide, seen = browser.execute_script(
        "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    )
    assert seen >= width - 20
    assert wide <= seen


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_labels_of_the_axes_do_not_touch(show, width):
    browser = show(width=width)
    plots = browser.execute_script(
        """
        return [...document.querySelectorAll(".plot, .scale svg")].map(plot =>
          [...plot.querySelectorAll(".tick")].map(tick => tick.getBoundingClientRect())
            .filter(box => box.width).map(box => [box.left, box.right, box.top, box.bottom]));
        """
    )
    assert len(plots) == 7
    for boxes in plots:
        assert len(boxes) >= 3
        for one, other in combinations(boxes, 2):
            apart = one[1] + 3 < other[0] or other[1] + 3 < one[0]
            assert apart or one[3] <= other[2] or other[3] <= one[2], (one, other)


def test_text_is_as_large_on_a_phone(show):
    browser = show(width=360)
    sizes = browser.execute_script(
        """
        return [...document.querySelectorAll("main *")].filter(e => e.getClientRects().length
            && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
          .map(e => parseFloat(getComputedStyle(e).fontSize));
        """
    )
    assert len(sizes) > 100
    # Smaller are only the signs of the verdicts, which are read out in words.
    assert sorted(sizes)[len(every(browser, ".verdict"))] >= 12


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as the browser gives them."""
    lights = []
    for colour in (one, other):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_drawn_stands_out(show, scheme):
    browser = show("wide", scheme=scheme)
    paper = style(every(browser, "body")[0], "background-color")
    assert (contrast(paper, "rgb(255, 255, 255)") < 1.1) == (scheme == "light")
    strokes = {style(line, "stroke") for line in every(browser, ".plot .stroke")}
    assert len(strokes) == 8
    assert min(contrast(stroke, paper) for stroke in strokes) >= 3
    for selector in ("h1", "h1 b", ".lede", ".notes", ".tags", "td", "summary", "dt", "legend"):
        assert contrast(style(every(browser, selector)[0], "color"), paper) >= 4.5, selector
    for selector in (".plot .tick", ".limit .name"):
        assert contrast(style(every(browser, selector)[0], "fill"), paper) >= 4.5, selector


def test_dark_is_another_page_than_light_and_paper_is_light(show):
    colours = []
    for looks in ({}, {"scheme": "dark"}, {"scheme": "dark", "medium": "print"}):
        browser = show(**looks)
        colours.append(
            [style(every(browser, "body")[0], name) for name in ("background-color", "color")]
            + [style(line, "stroke") for line in every(browser, ".plot .stroke")[:5]]
        )
    light, dark, printed = colours
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert printed == light


# It asks for nothing


@pytest.mark.parametrize("page", PAGES)
def test_nothing_but_the_file_is_asked_for(show, files, page):
    browser = show(page)
    asked = [address for address in requests(browser) if not address.startswith("data:")]
    assert asked == [files[page].as_uri()]


def test_a_server_is_asked_for_the_page_and_nothing_else(show, files):
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = files["sample"].read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            browser = show()
            browser.get(f"http://127.0.0.1:{server.server_port}/report.html")
            assert len(every(browser, ".group")) == 3
            # An icon is asked for a little later, if at all.
            browser.execute_async_script("setTimeout(arguments[0], 500)")
        finally:
            browser.get("about:blank")
            server.shutdown()
            thread.join()
    assert asked == ["/report.html"]


def test_a_hostile_result_runs_nothing(show):
    browser = show("hostile")
    assert browser.title.startswith("tensorferry bench: ferry.to is ")
    assert len(every(browser, "script, img, [onerror]")) == 0
    assert "<script>document.title='owned'</script>" in every(browser, "main")[0].text


def test_even_a_script_that_got_in_would_not_run(show):
    browser = show()
    ran = browser.execute_script(
        """
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        const image = new Image();
        image.src = "https://example.invalid/x.png";
        return window.ran === true;
        """
    )
    assert ran is False
    assert [re.search(r"(script|img)-src|default-src", said)[0] for said in messages(browser)] == [
        "default-src",
        "img-src",
    ]


# It obeys


def name_of(element: WebElement) -> str:
    """What the Tab key stops at: radio buttons of one name are one stop."""
    kind = element.tag_name
    return element.get_attribute("name") or f"{kind} {element.get_attribute('textContent').strip()}"


def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(show):
    browser = show()
    summary = every(browser, "summary")[0]
    browser.execute_script("arguments[0].click()", summary)
    focusable = "a[href], input, button, summary, [tabindex='0']"
    expected = list(
        dict.fromkeys(
            name_of(found)
            for found in every(browser, focusable)
            # Radio buttons and the first link are out of sight, yet they can be reached.
            if found.tag_name in ("a", "input") or found.is_displayed()
        )
    )
    reached = []
    for _ in range(len(expected) + 1):
        press(browser, Keys.TAB)
        here = browser.switch_to.active_element
        if here.tag_name == "body":
            break
        ring = here
        if here.get_attribute("type") == "radio":
            ring = browser.execute_script("return arguments[0].nextElementSibling", here)
        assert style(ring, "outline-style") == "solid", name_of(here)
        assert ring.rect["y"] >= 0
        reached.append(name_of(here))
    assert reached == expected
    assert len(reached) > 15


def test_the_first_link_leads_to_the_plots(show):
    browser = show()
    press(browser, Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.text == "Skip to the plots"
    assert skip.rect["y"] >= 0
    press(browser, Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "plots"


def test_time_or_bandwidth_can_be_shown_alone_by_the_keyboard(show, files):
    browser = show()

    def counts() -> list[int]:
        return [len(shown(browser, f"figure.{kind}")) for kind in ("time", "bandwidth")]

    assert counts() == [3, 3]
    every(browser, "#show-0")[0].send_keys(Keys.ARROW_RIGHT)
    assert counts() == [3, 0]
    press(browser, Keys.ARROW_RIGHT)
    assert counts() == [0, 3]
    press(browser, Keys.ENTER)
    assert browser.current_url == files["sample"].as_uri()
    assert counts() == [0, 3]
    every(browser, "button[type=reset]")[0].send_keys(Keys.SPACE)
    assert counts() == [3, 3]


def test_filters_hide_what_does_not_fit_and_a_link_brings_it_back(show):
    browser = show()

    def visible() -> list[str]:
        return [group.get_attribute("id") for group in shown(browser, ".group")]

    assert visible() == ["g0", "g1", "g2"]
    torch, cuda = every(browser, "#from-1 + span")[0], every(browser, "#on-1 + span")[0]
    torch.click()
    assert visible() == ["g1"]
    assert len(shown(browser, ".ratios tbody tr")) == 1
    cuda.click()
    assert visible() == []
    every(browser, ".overview a")[2].click()
    assert visible() == ["g2"]
    every(browser, "button[type=reset]")[0].click()
    assert visible() == ["g0", "g1", "g2"]


def test_a_method_that_is_picked_stands_out(show):
    browser = show()
    group = every(browser, ".group")[1]

    def bright() -> set[str]:
        drawn = every(group, ".plot .stroke, .plot .mark")
        return {
            re.search(r"\bm\d+", found.get_attribute("class"))[0]
            for found in drawn
            if style(found, "opacity") == "1"
        }

    everything = {f"m{number}" for number in range(5)}
    assert bright() == everything
    every(group, ".pick-all")[0].send_keys(Keys.ARROW_DOWN)
    assert bright() == {"m0"}
    press(browser, Keys.ARROW_DOWN)
    assert bright() == {"m1"}
    ActionChains(browser).move_to_element(every(group, ".k3")[0]).perform()
    assert bright() == {"m3"}
    ActionChains(browser).move_to_element(every(browser, "h2")[1]).perform()
    every(group, "thead label")[0].click()
    assert bright() == everything


def test_the_key_shows_the_values_of_the_size_that_is_pointed_at(show):
    browser = show()
    group = every(browser, ".group")[0]

    def heads() -> list[str]:
        return [head.text for head in shown(group, ".key thead .at")]

    def guides() -> int:
        return sum(style(guide, "opacity") == "1" for guide in every(group, ".guide"))

    assert heads() == ["at 1 GiB"]
    assert guides() == 0
    ActionChains(browser).move_to_element(every(group, ".time .c1 .hit")[0]).perform()
    assert heads() == ["at 64 KiB"]
    assert guides() == 2
    assert len(shown(group, ".key tbody .at")) == 3 * 5


def test_the_data_opens_as_a_table(show):
    browser = show()
    assert shown(browser, ".data") == []
    every(browser, "summary")[0].send_keys(Keys.ENTER)
    [table] = shown(browser, ".data")
    assert len(shown(table, "tbody tr")) == 30
