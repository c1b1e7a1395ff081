"""Runs the Python tests again and again beside busy loops: `make test-load RUNS=10 LOADS=4`.

A test whose outcome depends on time fails here sooner or later. Each run prints one line; the exit
code is 1 where any run failed. What a failed run printed lies in target/load/.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "target" / "load"
BUSY = ROOT / "tests" / "programs" / "stress" / "busy_loop.py"


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """Keeps as many processes busy."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen([sys.executable, str(BUSY)], stdin=subprocess.PIPE))
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.communicate()


def run(number: int, arguments: list[str]) -> bool:
    """One run of the tests; whether it passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"run-{number}.log"
    begin = time.monotonic()
    with path.open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip("= ") if lines else "printed nothing"
    minutes = (time.monotonic() - begin) / 60
    print(f"run {number}: exit code {done.returncode}, {minutes:.1f} min, {last}", flush=True)
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(f"  {line}", flush=True)
    if done.returncode == 0:
        path.unlink()
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how often the tests are run")
    parser.add_argument("--loads", type=int, default=4, help="how many busy loops run beside them")
    options, arguments = parser.parse_known_args()
    # The busy loops are stopped then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cores = len(os.sched_getaffinity(0))
    print(f"{options.runs} runs beside {options.loads} busy loops on {cores} cores", flush=True)
    with load(options.loads):
        passed = sum(run(number, arguments) for number in range(1, options.runs + 1))
    print(f"{passed} of {options.runs} runs passed")
    return 0 if passed == options.runs else 1


if __name__ == "__main__":
    sys.exit(main())
