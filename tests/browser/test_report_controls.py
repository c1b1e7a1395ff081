"""The controls of the report of `tensorferry bench`: keys and pointer reach and work them all."""

from __future__ import annotations

import re

from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.remote.webelement import WebElement
from support.browser import every, press, shown


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
        assert ring.value_of_css_property("outline-style") == "solid", name_of(here)
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


def test_very_many_groups_lie_in_bundles_that_links_and_keys_open(show):
    browser = show("bundled")
    assert len(every(browser, ".group")) == 60
    assert len(shown(browser, ".bundle > summary")) == len(every(browser, ".overview li")) == 12
    assert shown(browser, ".group") == []
    every(browser, ".bundle > summary")[0].send_keys(Keys.ENTER)
    assert len(shown(browser, ".group")) == 5
    every(browser, ".overview a")[11].click()
    assert len(shown(browser, ".group")) == 10
    every(browser, "#type-1 + span")[0].click()
    # The one that fits of either bundle, and the one that the link led to.
    assert len(shown(browser, ".group")) == 3
    every(browser, "#from-3 + span")[0].click()
    assert len(shown(browser, ".bundle > summary")) == 3


def test_a_method_that_is_picked_stands_out(show):
    browser = show()
    group = every(browser, ".group")[1]

    def bright() -> set[str]:
        classes = browser.execute_script(
            """
            return [...arguments[0].querySelectorAll(".plot .stroke, .plot .mark")]
              .filter(e => getComputedStyle(e).opacity === "1").map(e => e.className.baseVal);
            """,
            group,
        )
        return {re.search(r"\bm\d+", name)[0] for name in classes}

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
        return sum(
            guide.value_of_css_property("opacity") == "1" for guide in every(group, ".guide")
        )

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
