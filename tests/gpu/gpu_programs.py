"""Runs test programs on the GPU."""

from __future__ import annotations

import os
import subprocess
import sys

from support.subprocesses import HANG_SECONDS, TESTS, program_path


def run_program(name: str, *arguments: str, **environment: str) -> str:
    """Runs a file of tests/programs, which must end well; gives its stdout.

    Unlike `support.subprocesses`, this hides no GPU from the frameworks.
    """
    path = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, program_path(name), *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
