"""Interpreters that have already imported frameworks, for scripts that run for a short time.

One process imports NumPy, PyTorch and JAX without using them; every script runs in a fork of it.
The imports start no threads (OpenBLAS is configured not to), so a fork behaves like a new process.
TensorFlow is imported by the scripts, because no other LLVM may be imported after it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.subprocesses import QUIET, program_path


class InterpreterPool:
    """Runs scripts one after the other, each in a process of its own."""

    def __init__(self) -> None:
        # -P: the scripts do not find what lies beside the program.
        self._process = subprocess.Popen(
            [sys.executable, "-P", program_path("processes/run_forked_scripts.py")],
            env={**os.environ, **QUIET, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: Path, *arguments: str) -> tuple[int, str]:
        """The exit code of a script, and what it printed."""
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None
        assert answers is not None
        print(json.dumps([str(script), *arguments]), file=given, flush=True)
        answer: Any = json.loads(answers.readline() or '[-1, "the interpreter has ended"]')
        return answer[0], answer[1]

    def close(self) -> None:
        self._process.communicate()
