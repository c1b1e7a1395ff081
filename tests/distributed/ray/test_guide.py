"""The code of the guide runs, in a process and a cluster of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.ray_tasks import cluster_settings
from support.subprocesses import HANG_SECONDS, program_environment

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.not_quick
def test_the_code_of_the_guide_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "run.py"), "--distributed", str(DOCS / "guides" / "ray.md")],
        env=program_environment(**cluster_settings()),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
