"""Child processes that run probes, and that may hang or crash.

A child process has its own session, so that its descendants can be killed with it. It writes its
findings to a dedicated pipe, one JSON object per line. The output of frameworks goes to a temporary
file, whose last line is quoted if the process crashes.
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

PROBE_COMMAND = (sys.executable, "-P", "-m", "tensorferry._tools.doctor.probe")
POLL_SECONDS = 0.02
MAX_OUTPUT_BYTES = 4096
MAX_LINE_CHARS = 200


@dataclass(frozen=True)
class ProbeCall:
    """The name of a probe, and its arguments."""

    probe: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProcessExit:
    """How a child process ended."""

    kind: Literal["done", "error", "crash", "hang"]
    code: int = 0
    last_output: str = ""
    timeout: float = 0.0

    @property
    def description(self) -> str:
        """How it ended, as a predicate: "was killed by SIGSEGV"."""
        if self.kind == "hang":
            return f"reported nothing for {self.timeout:g} s and was killed"
        if self.kind == "crash":
            what = f"was killed by {self.signal}"
        else:
            what = f"exited with code {self.code}"
        if self.last_output:
            return f"{what}; its last output: {self.last_output}"
        return f"{what} without output"

    @property
    def signal(self) -> str | None:
        """The name of the signal that killed it."""
        if self.kind != "crash":
            return None
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.code).name
        return f"signal {-self.code}"

    @property
    def advice(self) -> str | None:
        """A hint that depends on how it ended."""
        if self.kind == "hang":
            return "if it is only slow, pass a longer --timeout"
        return {
            "SIGKILL": "the system may be out of memory: free some memory",
            "SIGILL": "install a build for this processor, which lacks an instruction set",
        }.get(self.signal or "")


OnFinding = Callable[[ProbeCall, Finding], object]


def run_probes(
    calls: Sequence[ProbeCall], on_finding: OnFinding, *, timeout: float, max_processes: int
) -> list[ProcessExit]:
    """Runs each call in a child process, passes on its findings, and returns how each ended.

    A process that reports nothing for `timeout` seconds counts as hanging. All processes are gone
    when this returns or raises.
    """
    exits: dict[int, ProcessExit] = {}
    running: dict[int, _ProbeProcess] = {}
    waiting = list(range(len(calls)))
    try:
        while waiting or running:
            while waiting and len(running) < max(max_processes, 1):
                number = waiting.pop(0)
                running[number] = _ProbeProcess(calls[number], timeout)
            pipes = [child.pipe for child in running.values() if child.is_open]
            select.select(pipes, [], [], POLL_SECONDS)
            for number, child in list(running.items()):
                # Checked before the pipe is read, so that the last findings are not lost.
                has_exited = child.has_exited()
                for finding in child.read_findings():
                    on_finding(child.call, finding)
                if has_exited or child.is_silent():
                    del running[number]
                    exits[number] = child.end(hangs=not has_exited)
    finally:
        for child in running.values():
            child.end()
    return [exits[number] for number in range(len(calls))]


class _ProbeProcess:
    def __init__(self, call: ProbeCall, timeout: float) -> None:
        self.call, self.timeout = call, timeout
        self.output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self.pipe, write = os.pipe()
        self.is_open, self.unparsed = True, b""
        self.last_finding_at = time.monotonic()
        os.set_blocking(self.pipe, False)
        try:
            self.process = subprocess.Popen(
                [*PROBE_COMMAND, str(write), call.probe, *call.arguments],
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                pass_fds=(write,),
                env=_environment(),
                start_new_session=True,
            )
        finally:
            os.close(write)

    def read_findings(self) -> list[Finding]:
        """The findings since the last call."""
        found: list[Finding] = []
        while self.is_open:
            try:
                got = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                break
            if not got:
                self._close_pipe()
                break
            *lines, self.unparsed = (self.unparsed + got).split(b"\n")
            self.last_finding_at = time.monotonic()
            found += [json.loads(line) for line in lines]
        return found

    def has_exited(self) -> bool:
        """Whether it has exited. It is not reaped, so that its PID is not reused before `end`."""
        status = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return status is not None

    def is_silent(self) -> bool:
        """Whether it has reported nothing for the timeout."""
        return time.monotonic() - self.last_finding_at > self.timeout

    def end(self, *, hangs: bool = True) -> ProcessExit:
        """Kills it and its descendants, and returns how it ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self._close_pipe()
        with self.output:
            last_output = _last_line(self.output)
        if hangs:
            return ProcessExit("hang", code, last_output, self.timeout)
        kind: Literal["done", "error", "crash"] = "done"
        if code != 0:
            kind = "crash" if code < 0 else "error"
        return ProcessExit(kind, code, last_output)

    def _close_pipe(self) -> None:
        if self.is_open:
            os.close(self.pipe)
            self.is_open = False


def _environment() -> dict[str, str]:
    """This process's environment, with its module search path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _last_line(output: IO[bytes]) -> str:
    """The last line of the output, shortened."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - MAX_OUTPUT_BYTES))
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output.read().decode(errors="replace"))
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return lines[-1][:MAX_LINE_CHARS] if lines else ""
