"""Child processes that use CuPy with a fake CUDA driver."""

from __future__ import annotations

import os
from pathlib import Path

from support import subprocesses

DRIVER = Path(subprocesses.TESTS).parent / "target" / "testdriver"
STANDIN = Path(subprocesses.TESTS) / "support" / "standin"


def environment() -> dict[str, str]:
    """The variables with which a process loads the fake driver and the CuPy for it."""
    paths = (str(STANDIN), subprocesses.TESTS, os.environ.get("PYTHONPATH"))
    return {
        "LD_LIBRARY_PATH": str(DRIVER),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def run_program(name: str, *arguments: str, **variables: str) -> str:
    """Runs a file of tests/programs with the fake driver; `support.fake_gpu` is for these."""
    return subprocesses.run_program(name, *arguments, **environment(), **variables)
