"""What a process shows on a terminal, read until it has shown what a test expects."""

from __future__ import annotations

import os
import re
import select
import subprocess
from pathlib import Path

from support.subprocesses import HANG_SECONDS

# A process whose main thread, which writes, has waited so often since its last output is in a loop
# of waits and shows nothing more.
IDLE_SLEEPS = 50


class Screen:
    """The terminal of a process whose main thread writes there, and sleeps between the writes."""

    def __init__(self, terminal: int, process: subprocess.Popen[str]) -> None:
        self._terminal = terminal
        self._process = process
        self._end = os.pidfd_open(process.pid)

    def close(self) -> None:
        os.close(self._end)

    def read_until(self, expected: str) -> str:
        """What is shown from now on, up to `expected`.

        Fails when the process has shown something else and waits again, or has ended.
        """
        text, sleeps = "", 0
        while expected not in text:
            if shown := self._read():
                text += shown
                sleeps = self._sleeps()
            elif select.select([self._end], [], [], 0)[0]:
                text += self._read()
                assert expected in text, f"the process ended, and showed {text!r}"
            else:
                is_idle = text and self._sleeps() > sleeps + IDLE_SLEEPS
                assert not is_idle, f"{expected!r} was expected, and shown was {text!r}"
                self._wait(1 if text else HANG_SECONDS)
        return text

    def _wait(self, seconds: float) -> None:
        """Waits for output or the end. Without any output, that must come: only a hang is late."""
        ready = select.select([self._terminal, self._end], [], [], seconds)[0]
        assert ready or seconds < HANG_SECONDS, "the process has shown nothing"

    def _read(self) -> str:
        """What is there to read now."""
        shown = ""
        while select.select([self._terminal], [], [], 0)[0]:
            shown += os.read(self._terminal, 4096).decode()
        return shown

    def _sleeps(self) -> int:
        """How often the main thread of the process has waited."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except FileNotFoundError:
            return 0
        found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", status, re.MULTILINE)
        return int(found[1]) if found else 0
