"""Builds the site with Zensical: `python docs/build.py` writes it into target/site.

Zensical has no hooks. So this script writes all pages to a folder of their own: those that are
written by hand, the reference (from the code) and the tables of benchmarks (from the records).
Zensical then builds that folder, and a warning of it is an error. It does not check the
navigation, so this script does.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benchmarks
import reference
import yaml

ROOT = Path(__file__).parent.parent
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
DRAWING = re.compile(r"^!\[[^\]]*\]\((\S+\.svg)\)$", re.MULTILINE)


def write_pages(written: Path, folder: Path) -> None:
    """Writes all pages to a folder, with what they need."""
    shutil.copytree(written, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "reference").mkdir()
    for name, text in reference.pages().items():
        (folder / "reference" / f"{name}.md").write_text(text)
    page = folder / "benchmarks.md"
    page.write_text(benchmarks.with_tables(page.read_text(), ROOT / "benches" / "records"))
    for page in folder.rglob("*.md"):
        page.write_text(with_drawings(page))


def with_drawings(page: Path) -> str:
    """A page with its drawings inside, where they take the colours of light and dark mode."""

    def drawing(found: re.Match[str]) -> str:
        return f'<div class="frame">\n{(page.parent / found[1]).read_text()}</div>'

    return DRAWING.sub(drawing, page.read_text())


def named(entries: list[Any]) -> Iterator[str]:
    """The pages in a navigation."""
    for entry in entries:
        (target,) = entry.values()
        if isinstance(target, str):
            yield target
        else:
            yield from named(target)


def check_navigation(config: Path, folder: Path) -> None:
    listed = sorted(named(yaml.safe_load(config.read_text())["nav"]))
    pages = sorted(str(page.relative_to(folder)) for page in folder.rglob("*.md"))
    if listed != pages:
        different = sorted(set(listed) ^ set(pages)) or "a page that it has twice"
        sys.exit(f"error: the navigation in mkdocs.yml and the pages differ: {different}")


def build(written: Path, output: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mkdocs.yml")
        shutil.copy(ROOT / "mkdocs.yml", config)
        write_pages(written, Path(folder, "docs"))
        check_navigation(config, Path(folder, "docs"))
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            # Zensical colours each letter, also where nobody sees colours.
            sys.exit(ESCAPE.sub("", done.stdout + done.stderr))
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(Path(folder, "site"), output)


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the documentation site.")
    parser.add_argument("--output", type=Path, default=ROOT / "target" / "site")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs", help="those written by hand")
    arguments = parser.parse_args()
    build(arguments.pages, arguments.output)
    print(arguments.output / "index.html")


if __name__ == "__main__":
    main()
