"""The code of the pages about Dask runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.subprocesses import HANG_SECONDS, program_environment

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("guides/dask.md", "cookbook/dask-arrays.md")


@pytest.mark.not_quick
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str) -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "run.py"), "--distributed", str(DOCS / page)],
        env=program_environment(),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_with_code_for_dask_is_run() -> None:
    """Pages about other engines are not for these tests."""
    found = {
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if "```python3\n" in page.read_text() and "ferry.dask" in page.read_text()
    }
    assert found == set(PAGES)
