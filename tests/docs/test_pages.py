"""The documentation: its code runs, its links lead somewhere, and it leaves out no public name."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support import subprocesses
from support.interpreter_pool import InterpreterPool
from support.oldest import OLDEST

import tensorferry as ferry

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^```(\w*)$", re.MULTILINE)
# The pages are about frameworks of today, and the site is built with the tools of today.
pytestmark = pytest.mark.skipif(OLDEST, reason="these are the oldest supported frameworks")


@pytest.fixture(scope="module")
def interpreters():
    interpreters = InterpreterPool()
    yield interpreters
    interpreters.close()


def kinds(page: Path) -> set[str]:
    """The kinds of block that a page has."""
    return set(FENCE.findall(page.read_text()))


def pages_with_code() -> list:
    found = [page for page in PAGES if "python" in kinds(page)]
    return [pytest.param(page, id=str(page.relative_to(DOCS))) for page in found]


@pytest.mark.parametrize("page", pages_with_code())
def test_the_code_of_a_page_runs(page, interpreters):
    code, shown = interpreters.run(DOCS / "run.py", str(page))
    assert code == 0, shown


def test_pages_import_frameworks_in_an_order_that_works():
    """TensorFlow comes last: PyTorch behind it crashes the process."""
    for page in PAGES:
        for kind in ("python", "py", "python3"):
            code = "".join(re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(), re.M | re.S))
            # What is in a text is for another process.
            code = re.sub(r'""".*?"""', "", code, flags=re.S)
            imported = re.findall(r"^import (torch|tensorflow)\b", code, re.M)
            assert imported == sorted(imported, reverse=True), page
            assert "import tensorferry as ferry" in code or not code, page


def test_blocks_are_of_a_kind_that_somebody_runs():
    """python, py and python3 are executed, sh is checked below, and text and toml are shown. The
    Rust tests of the crate that includes a page run rust, and tests/extensions the others."""
    known = {"", "python", "py", "python3", "sh", "text", "rust", "toml"}
    guides = [
        link.resolve()
        for link in ROOT.glob("crates/*/guide.md")
        if 'include_str!("../guide.md")' in (link.parent / "src" / "lib.rs").read_text()
    ]
    for page in PAGES:
        extension = page.stem.startswith("extensions-")
        assert kinds(page) <= known | ({"c", "cpp", "cython", "pycon"} if extension else set()), (
            page
        )
        assert "rust" not in kinds(page) or page.resolve() in guides, page
    assert len(pages_with_code()) >= 20


def commands(page: Path) -> list[list[str]]:
    """The arguments of each call of tensorferry in the blocks of shell commands."""
    code = "".join(re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S))
    calls = re.findall(r"\btensorferry ([^|&<#)\n]+)", code)
    return [shlex.split(call) for call in calls]


def test_shell_commands_are_those_of_the_program(capsys):
    from tensorferry._tools import cli

    calls = [call for page in PAGES for call in commands(page)]
    assert len(calls) >= 6
    for name, *arguments in calls:
        assert cli.main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        for argument in arguments:
            assert not argument.startswith("--") or argument in shown, (name, argument)


def test_a_page_that_fails_says_where(tmp_path, interpreters):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n")
    code, shown = interpreters.run(DOCS / "run.py", str(page))
    assert code == 1
    assert f'File "{page}", line 10' in shown


def test_code_for_a_gpu_is_python():
    for page in PAGES:
        for code in re.findall(r"^```py\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            compile(code, str(page), "exec")


def test_troubleshooting_quotes_messages_that_exist():
    """A heading in backquotes is a message of a golden file, or of the code; ... is left open."""
    page = (DOCS / "guides" / "troubleshooting.md").read_text()
    quoted = re.findall(r"^## `(.*)`$", page, re.M)
    assert len(quoted) >= 10
    golden = sorted((ROOT / "tests" / "golden").glob("*.txt"))
    sources = [*golden, *sorted((ROOT / "crates").rglob("*.rs"))]
    texts = "\n".join(path.read_text() for path in sources)
    for message in quoted:
        for part in message.split("..."):
            assert part.strip() in texts, message


# The site.


def build(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DOCS / "build.py"), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build("--output", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Links(HTMLParser):
    """What a page fetches by itself, what it leads to, and the places in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.linked: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self.fetched += [given[name] for name in ("src", "srcset", "data") if name in given]
        if "href" in given:
            (self.linked if tag == "a" else self.fetched).append(given["href"])


def test_the_site_fetches_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for address in Links(page).fetched:
            assert not urlsplit(address).netloc, f"{page.name} fetches {address}"
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")]+)", sheet.read_text()):
            assert address.startswith("data:") or not urlsplit(address).netloc, address


def test_links_between_pages_lead_somewhere(site):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    checked = 0
    for page, links in pages.items():
        for link in [*links.linked, *links.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link in ("", "#"):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.exists(), f"{page.name} leads to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].places, f"{page.name}: {link}"
            checked += 1
    assert checked > 500


def test_every_public_name_is_in_the_reference(site):
    """As a heading: to be mentioned is not enough."""
    places = set()
    for page in (site / "reference").glob("*.html"):
        titles = re.findall(r"<h2 [^>]*>(.*?)<a ", page.read_text())
        places |= {re.sub(r"<[^>]*>", "", title) for title in titles}
    assert set(ferry.__all__) <= places
    text = (site / "reference" / "to.html").read_text()
    assert "budget" in text
    assert "CopyRequiredError" in text


def test_every_command_is_in_the_reference(site):
    from tensorferry._tools import cli

    text = (site / "reference" / "command-line.html").read_text()
    for module in cli.COMMANDS:
        assert f"usage: tensorferry {module.__name__.rpartition('.')[2]}" in text


def test_a_name_without_a_topic_is_noticed():
    done = subprocesses.attempt_program("docs/name_without_topic.py", str(DOCS))
    assert "no topic of docs/reference.py has ['stranger']" in done.stderr


def changed_copy(folder: Path, page: str, added: str) -> Path:
    """A copy of the pages, one of which has a line more."""
    copy = folder / "docs"
    shutil.copytree(DOCS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / page).open("a") as file:
        file.write(added)
    return copy


def test_a_broken_link_breaks_the_build(tmp_path):
    pages = changed_copy(tmp_path, "index.md", "\n[a](gone.md) [b](guides/sharing.md#gone)\n")
    done = build("--pages", str(pages), "--output", str(tmp_path / "site"))
    assert done.returncode != 0
    assert "page does not exist" in done.stderr
    assert "anchor does not exist" in done.stderr


def test_a_page_outside_the_navigation_breaks_the_build(tmp_path):
    pages = changed_copy(tmp_path, "guides/more.md", "# More\n")
    done = build("--pages", str(pages), "--output", str(tmp_path / "site"))
    assert done.returncode != 0
    assert "guides/more.md" in done.stderr


# What the site has besides.


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("Install", "get-started/install.html"),
        ("pandas", "guides/types.html"),
        ("DataLoader", "cookbook/dataloader.html"),
        ("safetensors", "guides/files.html"),
        ("TENSORFERRY_POOL", "guides/settings.html"),
    ],
)
def test_search_has_a_section_about(site, word, page):
    """In its title or its text; tests/browser asks the search itself."""
    index = json.loads((site / "search.json").read_text())
    found = {
        item["location"].partition("#")[0]
        for item in index["items"]
        if word in item["title"] + item["text"]
    }
    assert page in found


def test_benchmarks_show_the_newest_record_of_each_section(site):
    records = [json.loads(path.read_text()) for path in (ROOT / "benches/records").glob("*.json")]
    dates: dict[str, str] = {}
    for record in records:
        for section in record.get("sections", {}).values():
            if not record["void"]:
                title, date = section["title"], record["machine"]["date"]
                dates[title] = max(dates.get(title, ""), date)
    text = (site / "benchmarks.html").read_text()
    headings = re.split(r"<h2 [^>]*>", text)[1:]
    shown = {heading.partition("<a ")[0]: heading for heading in headings}
    assert dates.keys() == shown.keys()
    for title, date in dates.items():
        assert date[:10] in shown[title]
        assert "<table" in shown[title]
