"""A test that hangs ends its process, also in its teardown, and shows the stacks of its threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.subprocesses import HANG_SECONDS, TESTS

CONFTEST = """
from support import hang_guard

def pytest_configure(config):
    config.pluginmanager.register(hang_guard, "hang_guard")
"""

# The limit becomes short in the test itself, so that nothing before is held to it.
HANGS = """
import threading
import pytest
from support import hang_guard

def hangs_for_good():
    threading.Event().wait()

@pytest.fixture
def _hangs_at_the_end():
    yield
    hangs_for_good()

def test_fails(_hangs_at_the_end):
    hang_guard.TEST_SECONDS = 1
    assert {condition}
"""


@pytest.mark.parametrize("condition", [True, False], ids=["passed", "failed"])
def test_a_teardown_that_hangs_is_ended(tmp_path: Path, condition: bool) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hangs.py").write_text(HANGS.format(condition=condition))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": TESTS},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "Timeout (0:00:01)!" in done.stderr
    assert "in hangs_for_good" in done.stderr
    assert "passed" not in done.stdout
