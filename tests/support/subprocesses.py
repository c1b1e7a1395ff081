"""Fresh interpreters for the tests that need one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = str(Path(__file__).parent.parent)

# How long a test waits for what must happen. Only a hang takes longer, also on a loaded machine.
HANG_SECONDS = 600

# The order is the one in which the frameworks live together: TensorFlow after Paddle and PyTorch.
IMPORTS = {
    "numpy": "import numpy",
    "paddle": "import paddle",
    "torch": "import torch",
    "jax": "import jax",
    "tensorflow": "import tensorflow",
    "mlx": "import mlx.core",
}


def run(code: str, *arguments: str, timeout: float = HANG_SECONDS, **environment: str) -> str:
    """Runs `code` in a fresh interpreter that must end well and in silence; gives its stdout."""
    done = attempt(code, *arguments, timeout=timeout, **environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == "", done.stderr
    return done.stdout


def attempt(
    code: str, *arguments: str, timeout: float = HANG_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter and gives what became of it."""
    quiet = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "JAX_PLATFORMS": "cpu",
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH")))),
    }
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, **quiet, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def imports(*names: str) -> str:
    """Lines that import these frameworks in an order that works."""
    return "\n".join(line for name, line in IMPORTS.items() if name in names) + "\n"


def stop(process: subprocess.Popen) -> None:
    """Stops a child, and comes back when all its threads stand still."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
