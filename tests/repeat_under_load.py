"""Runs `make test` again and again beside busy loops: `make test-load RUNS=10 LOADS=4`.

A test whose outcome depends on time fails here sooner or later. Each run prints one line and is
added to a record in benches/records; the exit code is 1 where any run failed. What a failed run
printed lies in target/load/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "target" / "load"
RECORDS = ROOT / "benches" / "records"
BUSY = ROOT / "tests" / "programs" / "stress" / "busy_loop.py"
# The summaries of pytest and of cargo.
PASSED = re.compile(r"^(?:test result: \w+\. |=.* )(\d+) passed", re.MULTILINE)
FAILURES = re.compile(r"^(?:(?:FAILED|ERROR) .*|test .* FAILED)$", re.MULTILINE)


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


def run(number: int, target: str) -> dict[str, Any]:
    """One run of the tests; returns its part of the record."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"run-{number}.log"
    begin = time.monotonic()
    with path.open("wb") as log:
        command = ["make", "--no-print-directory", target]
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    minutes = round((time.monotonic() - begin) / 60, 1)
    text = path.read_text(errors="replace")
    found = {
        "exit code": done.returncode,
        "minutes": minutes,
        "passed": sum(map(int, PASSED.findall(text))),
        "failures": FAILURES.findall(text),
    }
    print(f"run {number}: {found}", flush=True)
    if done.returncode == 0:
        path.unlink()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how often the tests are run")
    parser.add_argument("--loads", type=int, default=4, help="how many busy loops run beside them")
    parser.add_argument("target", nargs="?", default="test", help="the target of the Makefile")
    options = parser.parse_args()
    # The busy loops are stopped then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.path.insert(0, str(ROOT / "benches"))
    import machine

    facts = machine.description()
    record: dict[str, Any] = {
        "machine": facts,
        "command": f"make {options.target}",
        "busy loops": options.loads,
        "runs asked for": options.runs,
        "runs": [],
    }
    stem = "-".join((facts["date"][:10], machine.name(), "load", options.target))
    with load(options.loads):
        for number in range(1, options.runs + 1):
            record["runs"].append(run(number, options.target))
            # After each run, so that a series that is stopped leaves a record too.
            (RECORDS / f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    passed = sum(found["exit code"] == 0 for found in record["runs"])
    print(f"{passed} of {options.runs} runs passed")
    return 0 if passed == options.runs else 1


if __name__ == "__main__":
    sys.exit(main())
