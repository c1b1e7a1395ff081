"""Child processes that tell what they find, and that may hang or die without harm to us.

A child is a session of its own, so that all that it started can be ended with it. It tells its
findings, one JSON object to a line, through a pipe that nothing else writes to; what frameworks
print goes to a file without a name, of which the last line is quoted when the child dies.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal

Finding = dict[str, Any]

PROBE = (sys.executable, "-P", "-m", "tensorferry._tools.doctor.probe")
TICK = 0.02
QUOTED = 4096
LONGEST = 200


@dataclass(frozen=True)
class Job:
    """What a child is to do: the name of a probe, and what it needs to know."""

    probe: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ending:
    """How a child came to its end."""

    how: Literal["done", "error", "crash", "hang"]
    code: int = 0
    said: str = ""
    timeout: float = 0.0

    @property
    def words(self) -> str:
        """What became of it, to follow the name of what it did."""
        if self.how == "hang":
            return f"was silent for {self.timeout:g} s and was ended"
        what = f"died by {self.signal}" if self.how == "crash" else f"ended with code {self.code}"
        return f"{what}, and said last: {self.said}" if self.said else f"{what}, and said nothing"

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it."""
        if self.how != "crash":
            return None
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.code).name
        return f"signal {-self.code}"

    @property
    def advice(self) -> str | None:
        """What the way in which it ended suggests."""
        if self.how == "hang":
            return "if it is only slow, pass a longer --timeout"
        return {
            "SIGKILL": "the system may have run out of memory: leave it more",
            "SIGILL": "install a build for this processor, which lacks instructions that it uses",
        }.get(self.signal or "")


Hear = Callable[[Job, Finding], object]


def run(jobs: Sequence[Job], hear: Hear, *, timeout: float, at_once: int) -> list[Ending]:
    """Runs a child for each job, passes on what they find, and says how each ended.

    A child that has told nothing for `timeout` seconds is taken to hang. None is left when this
    returns or raises.
    """
    endings: dict[int, Ending] = {}
    running: dict[int, _Child] = {}
    waiting = list(range(len(jobs)))
    try:
        while waiting or running:
            while waiting and len(running) < max(at_once, 1):
                number = waiting.pop(0)
                running[number] = _Child(jobs[number], timeout)
            select.select([child.pipe for child in running.values() if child.open], [], [], TICK)
            for number, child in list(running.items()):
                # Asked before it is listened to, so that its last words are not lost.
                is_over = child.is_over()
                for finding in child.findings():
                    hear(child.job, finding)
                if is_over or child.is_silent():
                    del running[number]
                    endings[number] = child.end(hangs=not is_over)
    finally:
        for child in running.values():
            child.end()
    return [endings[number] for number in range(len(jobs))]


class _Child:
    def __init__(self, job: Job, timeout: float) -> None:
        self.job, self.timeout = job, timeout
        self.noise: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self.pipe, write = os.pipe()
        self.open, self.rest = True, b""
        self.heard = time.monotonic()
        os.set_blocking(self.pipe, False)
        try:
            self.process = subprocess.Popen(
                [*PROBE, str(write), job.probe, *job.arguments],
                stdin=subprocess.DEVNULL,
                stdout=self.noise,
                stderr=self.noise,
                pass_fds=(write,),
                env=_environment(),
                start_new_session=True,
            )
        finally:
            os.close(write)

    def findings(self) -> list[Finding]:
        """What it has told since it was last asked."""
        found: list[Finding] = []
        while self.open:
            try:
                got = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                break
            if not got:
                self._close_pipe()
                break
            *lines, self.rest = (self.rest + got).split(b"\n")
            self.heard = time.monotonic()
            found += [json.loads(line) for line in lines]
        return found

    def is_over(self) -> bool:
        """Whether it has ended. It is not reaped, so that its number stays its own until `end`."""
        seen = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return seen is not None

    def is_silent(self) -> bool:
        """Whether it has told nothing for too long."""
        return time.monotonic() - self.heard > self.timeout

    def end(self, *, hangs: bool = True) -> Ending:
        """Ends it with all that it has started, and says how that came."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self._close_pipe()
        with self.noise:
            said = _last_line(self.noise)
        if hangs:
            return Ending("hang", code, said, self.timeout)
        return Ending("crash" if code < 0 else "error" if code > 0 else "done", code, said)

    def _close_pipe(self) -> None:
        if self.open:
            os.close(self.pipe)
            self.open = False


def _environment() -> dict[str, str]:
    """Ours, with the modules that we would find ourselves, wherever we were started."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _last_line(noise: IO[bytes]) -> str:
    """The last thing that was printed, in one short line."""
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - QUOTED))
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", noise.read().decode(errors="replace"))
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else ""
