"""The documentation site, opened from the disk: search answers, and every page fits its window."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait
from support.browser import every, press, requests, screenshot, shown, visit

ROOT = Path(__file__).parent.parent.parent
# The theme keeps the results of a search in a shadow root.
RESULTS = """
const hosts = [...document.querySelectorAll("*")].filter(e => e.shadowRoot)
return hosts.flatMap(e => [...e.shadowRoot.querySelectorAll("a[href]")]).map(a => a.href)
"""
# What reaches beyond the window, but for what lies in a box that scrolls.
WIDER = """
const content = document.querySelector(".md-content")
const scrolls = e => getComputedStyle(e).overflowX != "visible"
const boxed = e => e != content && (scrolls(e) || boxed(e.parentElement))
return [...content.querySelectorAll("*")]
    .filter(e => e.getBoundingClientRect().right > arguments[0] && !boxed(e.parentElement))
    .map(e => e.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--output", str(folder)]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("install", "get-started/install.html"),
        ("pandas", "guides/types.html"),
        ("DataLoader", "cookbook/dataloader.html"),
    ],
)
def test_search_finds(browser: webdriver.Chrome, site: Path, word: str, page: str) -> None:
    screenshot(browser)
    visit(browser, (site / "index.html").as_uri())
    every(browser, ".md-search__button")[0].click()
    press(browser, word)
    answer = (site / page).as_uri()
    WebDriverWait(browser, 30, 0.05).until(
        lambda _: any(link.startswith(answer) for link in browser.execute_script(RESULTS))
    )
    assert all(address.startswith(("file:", "data:", "about:")) for address in requests(browser))


def test_no_page_is_wider_than_the_window(browser: webdriver.Chrome, site: Path) -> None:
    pages = sorted(page for page in site.rglob("*.html") if page.name != "404.html")
    assert len(pages) > 40
    for page in pages:
        visit(browser, page.as_uri())
        for width in (400, 1280):
            screenshot(browser, width=width)
            assert browser.execute_script(WIDER, width) == [], (page.name, width)


def test_dark_mode_follows_the_reader_and_the_button(browser: webdriver.Chrome, site: Path) -> None:
    scheme = "return document.body.getAttribute('data-md-color-scheme')"
    for preference, expected in (("light", "default"), ("dark", "slate"), ("light", "default")):
        screenshot(browser, scheme=preference)
        visit(browser, (site / "index.html").as_uri())
        assert browser.execute_script(scheme) == expected
    found = []
    for _ in range(3):
        (toggle,) = shown(browser, "label[for^=__palette]")
        toggle.click()
        found.append(browser.execute_script(scheme))
    assert found == ["default", "slate", "default"]  # light, dark, as the reader prefers
