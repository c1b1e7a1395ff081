"""One browser for all tests here, and the pages that they look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from support.browser import chromium, console_log, screenshot, visit
from support.results import PAGES

from tensorferry._tools import report

Opener = Callable[..., webdriver.Chrome]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    paths = {name: folder / f"{name.replace(' ', '-')}.html" for name in PAGES}
    for name, path in paths.items():
        report.write(PAGES[name](), path)
    return paths


@pytest.fixture
def show(browser: webdriver.Chrome, files: dict[str, Path]) -> Iterator[Opener]:
    """Opens a page; when the test is over, the console must have been told nothing."""
    console_log(browser)

    def open_page(name: str = "sample", **looks: object) -> webdriver.Chrome:
        screenshot(browser, **looks)
        visit(browser, files[name].as_uri())
        return browser

    yield open_page
    assert console_log(browser) == []
