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

WORKER_CODE = """
import json, os, runpy, sys, tempfile
import numpy, torch, jax.numpy

for line in sys.stdin:
    argv = json.loads(line)
    with tempfile.TemporaryFile() as shown:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(shown.fileno(), 1)
            os.dup2(shown.fileno(), 2)
            sys.argv = argv
            code = 1
            try:
                runpy.run_path(argv[0], run_name="__main__")
                code = 0
            except SystemExit as leave:
                code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        shown.seek(0)
        print(json.dumps([code, shown.read().decode()]), flush=True)
"""


class InterpreterPool:
    """Runs scripts one after the other, each in a process of its own."""

    def __init__(self) -> None:
        quiet = {
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "JAX_PLATFORMS": "cpu",
            "PYTHONWARNINGS": "ignore",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER_CODE],
            env={**os.environ, **quiet},
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
