"""Fresh interpreters for the tests that need one."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = str(Path(__file__).parent.parent)
PROGRAMS = Path(TESTS, "programs")

# How long a test waits for what must happen. Only a hang takes longer, also on a loaded machine.
HANG_SECONDS = 600

# Frameworks use the CPU, and log nothing.
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "JAX_PLATFORMS": "cpu",
    "PYTHONWARNINGS": "ignore",
}

# The order is the one in which the frameworks live together: TensorFlow after Paddle and PyTorch.
IMPORTS = {
    "numpy": "import numpy",
    "paddle": "import paddle",
    "torch": "import torch",
    "jax": "import jax",
    "tensorflow": "import tensorflow",
    "mlx": "import mlx.core",
}


def run_program(
    name: str, *arguments: str, timeout: float = HANG_SECONDS, **environment: str
) -> str:
    """Runs a file of tests/programs, which must exit with 0 and write nothing to stderr; returns
    its stdout."""
    return _stdout(attempt_program(name, *arguments, timeout=timeout, **environment))


def attempt(
    code: str, *arguments: str, timeout: float = HANG_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter and gives what became of it."""
    return _attempt(["-c", textwrap.dedent(code), *arguments], timeout, environment)


def attempt_program(
    name: str, *arguments: str, timeout: float = HANG_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a file of tests/programs in a fresh interpreter and gives what became of it."""
    return _attempt([program_path(name), *arguments], timeout, environment)


def program_path(name: str) -> str:
    """The path of a program such as "processes/fork_twice.py"."""
    path = PROGRAMS / name
    assert path.is_file(), path
    return str(path)


def read_program(name: str) -> str:
    """The text of a program, for interpreters that are given text."""
    return Path(program_path(name)).read_text()


def program_environment(**environment: str) -> dict[str, str]:
    """The environment of test programs: frameworks log nothing, and tests/ can be imported."""
    path = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **QUIET, "PYTHONPATH": path, **environment}


def _attempt(
    command: list[str], timeout: float, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env=program_environment(**environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _stdout(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == "", done.stderr
    return done.stdout


def import_frameworks(*names: str) -> None:
    """Imports these frameworks in an order that works."""
    for name, line in IMPORTS.items():
        if name in names:
            importlib.import_module(line.removeprefix("import "))


def stop(process: subprocess.Popen) -> None:
    """Stops a child, and comes back when all its threads stand still."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
