"""A test that hangs ends its process, also in its teardown, and shows the stacks of its threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.subprocesses import HANG_SECONDS, TESTS, program_path

# No configuration and no conftest.py of this suite, whose frameworks take long to import.
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "support.hang_guard", "--noconftest")


@pytest.mark.parametrize("condition", ["met", "unmet"])
def test_a_teardown_that_hangs_is_ended(tmp_path: Path, condition: str) -> None:
    test = f"{program_path('processes/hanging_teardowns.py')}::test_a_condition[{condition}]"
    done = subprocess.run(
        [sys.executable, *PYTEST, "-c", os.devnull, "--rootdir", str(tmp_path), test],
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
