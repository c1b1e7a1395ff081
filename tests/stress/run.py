"""Stress programs for deferred drops, each in a process of its own under a watchdog.

    python tests/stress/run.py [--seconds N] [--stall-seconds N] [PROGRAM ...]

The time is divided between the programs, which run one after the other. A program counts its rounds
in a file that it shares with this process. A program whose count stands still for `--stall-seconds`
while its process lives is a hang: its threads and those of its children are printed (by
`faulthandler`, and by gdb where it is installed), it is killed, and the exit status is 1. This
process is the watchdog because a thread of the program would itself wait for the GIL that a hung
thread holds.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("all_directions", "main_blocked", "paddle_worker", "gc_loop", "after_fork", "at_exit")
SCRIPT = Path(__file__).parent.parent / "programs" / "stress" / "programs.py"
COUNT = struct.Struct("=q")
START_SECONDS = 300
HANDLER_SECONDS = 60
GDB_SECONDS = 900
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """How one program ended."""

    program: str
    rounds: int
    seconds: float
    failure: str | None


def descendants(process: int) -> list[int]:
    """The processes that a process forked, and those that they forked."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def blocking_threads(process: int, number: signal.Signals) -> set[str]:
    """The threads of a process on which a signal is blocked, or waits for its handler."""
    bit = 1 << (number - 1)
    found = set()
    for status in Path(f"/proc/{process}/task").glob("*/status"):
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        if any(int(fields[name], 16) & bit for name in ("SigPnd", "ShdPnd", "SigBlk")):
            found.add(fields["Pid"])
    return found


def print_threads(process: int) -> None:
    """Prints the Python stacks of a hung process, then its native ones."""
    print(f"process {process}", flush=True)
    # `faulthandler` writes them in the signal handler, without the GIL. The signal is blocked on
    # the thread that runs the handler; threads of frameworks may block it for good.
    before = blocking_threads(process, signal.SIGUSR1)
    os.kill(process, signal.SIGUSR1)
    end = time.monotonic() + HANDLER_SECONDS
    while blocking_threads(process, signal.SIGUSR1) - before:
        if time.monotonic() > end:
            print(f"the handler of SIGUSR1 took more than {HANDLER_SECONDS} s")
            break
        time.sleep(POLL_SECONDS)
    if shutil.which("gdb"):
        command = ("gdb", "-nx", "-p", str(process), "-batch", "-ex", "thread apply all bt 30")
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=GDB_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"gdb took more than {GDB_SECONDS} s to read the symbols")


def run(program: str, seconds: float, stall_seconds: float) -> Outcome:
    """Runs one program for that long and watches its count."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(COUNT.pack(0))
        file.flush()
        count = mmap.mmap(file.fileno(), COUNT.size)
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(SCRIPT), program, str(seconds), file.name],
            start_new_session=True,
        )
        begin = last_change = time.monotonic()
        rounds = 0
        failure = None
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            (current,) = COUNT.unpack_from(count)
            if current != rounds:
                rounds, last_change = current, now
            allowed = stall_seconds if rounds else START_SECONDS
            if now - last_change > allowed:
                failure = f"hung: no round in {allowed:.0f} s after {rounds} rounds"
                print(f"{program}: {failure}", flush=True)
                for process in [child.pid, *descendants(child.pid)]:
                    print_threads(process)
                child.kill()
        status = child.wait()
        # Children that the program forked and left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        (rounds,) = COUNT.unpack_from(count)
        if failure is None and status != 0:
            failure = f"ended with status {status}"
        if failure is None and rounds == 0:
            failure = "made no round"
        return Outcome(program, rounds, time.monotonic() - begin, failure)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="time of all programs together")
    parser.add_argument("--stall-seconds", type=float, default=60, help="when a program is hung")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    arguments = parser.parse_args()
    programs = arguments.programs or list(PROGRAMS)
    unknown = sorted(set(programs) - set(PROGRAMS))
    if unknown:
        parser.error(f"unknown programs: {', '.join(unknown)}")
    outcomes = []
    for program in programs:
        outcome = run(program, arguments.seconds / len(programs), arguments.stall_seconds)
        outcomes.append(outcome)
        print(
            f"{outcome.program:15} {outcome.rounds:8} rounds {outcome.seconds:7.0f} s  "
            f"{outcome.failure or 'ok'}",
            flush=True,
        )
    return int(any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
