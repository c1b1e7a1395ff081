"""A real browser, without a window: Debian's Chromium, driven through its own driver."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from selenium import webdriver

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


def look(
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


def messages(browser: webdriver.Chrome) -> list[str]:
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
