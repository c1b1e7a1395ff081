"""A real browser, without a window: Debian's Chromium, driven through its own driver."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
)


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """Starts the browser with a new profile, and ends it."""
    for program in (CHROMIUM, DRIVER):
        assert program.exists(), f"{program} is missing: install Debian's chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        yield browser
    finally:
        browser.quit()


def visit(browser: webdriver.Chrome, address: str) -> None:
    """Opens a page anew, and waits for all of it: on a busy machine the driver is too early."""
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get(address)
    there = "return document.readyState === 'complete' && location.href === arguments[0]"
    WebDriverWait(browser, 30, 0.05).until(lambda _: browser.execute_script(there, address))


def screenshot(
    browser: webdriver.Chrome,
    *,
    width: int = 1280,
    scheme: str = "light",
    medium: str = "screen",
) -> None:
    """Sets how wide the page is, and what the reader prefers; nothing moves."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    features = {
        "prefers-color-scheme": scheme,
        "prefers-reduced-motion": "reduce",
    }
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {
            "media": medium,
            "features": [{"name": name, "value": value} for name, value in features.items()],
        },
    )


def console_log(browser: webdriver.Chrome) -> list[str]:
    """Everything that the console was told since it was last asked."""
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser: webdriver.Chrome) -> list[str]:
    """Every address that was asked for since this was last asked."""
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def every(browser: webdriver.Chrome | WebElement, selector: str) -> list[WebElement]:
    """All elements that a selector finds."""
    return browser.find_elements(By.CSS_SELECTOR, selector)


def shown(browser: webdriver.Chrome | WebElement, selector: str) -> list[WebElement]:
    """Those of them that can be seen."""
    return [found for found in every(browser, selector) if found.is_displayed()]


def open_all(browser: webdriver.Chrome) -> None:
    """Opens all that can be opened."""
    browser.execute_script("for (const e of document.querySelectorAll('details')) e.open = true")


def press(browser: webdriver.Chrome, *keys: str) -> None:
    """Presses keys, wherever the focus is."""
    ActionChains(browser, duration=0).send_keys(*keys).perform()
