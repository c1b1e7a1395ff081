"""A process that serves the functions of worker.py: `Worker("torch").run("total")`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from support.subprocesses import HANG_SECONDS, program_path


class Worker:
    """A child with a framework, and a pipe to it."""

    def __init__(self, framework: str = "numpy", **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, program_path("gpu/worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.run("start", framework)

    def run(self, function: str, *arguments: Any, **options: Any) -> Any:
        """What a function gives; its error, if it raises one."""
        self.tell(function, *arguments, **options)
        return self.hear()

    def tell(self, function: str, *arguments: Any, **options: Any) -> None:
        """Has a function called, and does not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([function, arguments, options]) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """What came of the call that was told."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the other process ended with {self.process.wait()}")
        told = json.loads(line)
        if "error" in told:
            raise AssertionError(told["error"])
        return told["answer"]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._close()

    def end(self) -> None:
        assert self._close() == 0

    def _close(self) -> int:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return self.process.wait(timeout=HANG_SECONDS)
