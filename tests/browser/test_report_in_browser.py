"""The report of `tensorferry bench` in a real browser: it is drawn, and it asks for nothing."""

from __future__ import annotations

import http.server
import re
import threading
from itertools import combinations

import pytest
from support.browser import console_log, every, open_all, requests, screenshot, visit
from support.results import PAGES

# It is drawn


@pytest.mark.parametrize("page", PAGES)
def test_every_measurement_is_drawn(show, page):
    browser = show(page)
    open_all(browser)
    drawn = [row for row in PAGES[page]()["rows"] if row["error"] is None]
    assert len(every(browser, ".time .plot .mark")) == len(drawn)
    moving = [row for row in drawn if row["shares"] is not True]
    assert len(every(browser, ".bandwidth .plot .mark")) == len(moving)
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
def test_the_page_never_scrolls_sideways(show, page):
    browser = show(page)
    open_all(browser)
    for width in (320, 360, 768, 1280):
        screenshot(browser, width=width)
        many_rows, seen = browser.execute_script(
            "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
        )
        assert width - 20 <= seen <= width
        assert many_rows <= seen, width


@pytest.mark.parametrize("page", ["sample", "many sizes"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_labels_of_the_axes_do_not_touch(show, page, width):
    browser = show(page, width=width)
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
    paper = every(browser, "body")[0].value_of_css_property("background-color")
    assert (contrast(paper, "rgb(255, 255, 255)") < 1.1) == (scheme == "light")
    strokes = {line.value_of_css_property("stroke") for line in every(browser, ".plot .stroke")}
    assert len(strokes) == 8
    assert min(contrast(stroke, paper) for stroke in strokes) >= 3
    for selector in ("h1", "h1 b", ".lede", ".notes", ".tags", "td", "summary", "dt", "legend"):
        assert contrast(every(browser, selector)[0].value_of_css_property("color"), paper) >= 4.5, (
            selector
        )
    for selector in (".plot .tick", ".limit .name"):
        assert contrast(every(browser, selector)[0].value_of_css_property("fill"), paper) >= 4.5, (
            selector
        )


def test_dark_is_another_page_than_light_and_paper_is_light(show):
    colours = []
    for looks in ({}, {"scheme": "dark"}, {"scheme": "dark", "medium": "print"}):
        browser = show(**looks)
        colours.append(
            [
                every(browser, "body")[0].value_of_css_property(name)
                for name in ("background-color", "color")
            ]
            + [line.value_of_css_property("stroke") for line in every(browser, ".plot .stroke")[:5]]
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
            visit(browser, f"http://127.0.0.1:{server.server_port}/report.html")
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
    assert browser.title.startswith("tensorferry bench: In the median, ferry.to is ")
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
    assert [
        re.search(r"(script|img)-src|default-src", said)[0] for said in console_log(browser)
    ] == [
        "default-src",
        "img-src",
    ]
