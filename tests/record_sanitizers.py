"""Runs the models and sanitizers of the Rust code and records the results: `make sanitizers`.

The tools run in the order of `TOOLS`, the cheapest first. Each is a target of the Makefile with a
target directory of its own. The record goes to benches/records, what the tools print to
target/sanitizers. The exit code is 1 where any tool failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benches" / "records"
LOGS = ROOT / "target" / "sanitizers"
# The cheapest first, so that a defect is found early.
TOOLS = ("loom", "miri", "asan", "tsan")
# What a record says of the machine.
MACHINE_KEYS = ("date", "cpu", "cores", "memory GiB", "kernel", "load", "commit")
# Variables that change what the tools try.
VARIABLES = ("LOOM_MAX_PREEMPTIONS", "MIRIFLAGS", "PROPTEST_CASES")
COUNTS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)


def summary(log: str, exit_code: int) -> dict[str, Any]:
    """The result of a tool and the number of tests that passed, failed and were ignored.

    A tool that ran no test has failed, whatever its exit code is.
    """
    counts = [tuple(map(int, found)) for found in COUNTS.findall(log)]
    passed, failed, ignored = (
        (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    )
    return {
        "result": "passed" if exit_code == 0 and passed and not failed else "failed",
        "passed": passed,
        "failed": failed,
        "ignored": ignored,
    }


def run(tool: str) -> dict[str, Any]:
    """Runs one tool; returns its part of the record."""
    command = ["make", "--no-print-directory", tool]
    path = LOGS / f"{tool}.log"
    begin = time.monotonic()
    with path.open("wb") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    seconds = round(time.monotonic() - begin)
    found = summary(path.read_text(errors="replace"), done.returncode)
    print(f"{tool}: {found} in {seconds} s", flush=True)
    return {"command": f"make {tool}", **found, "seconds": seconds}


def version(toolchain: str | None = None) -> str:
    """The version of the compiler."""
    command = ["rustc", *([f"+{toolchain}"] if toolchain else []), "--version"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tools", nargs="*", metavar="TOOL", help=f"of {', '.join(TOOLS)}; all if none is named"
    )
    chosen = parser.parse_args().tools
    if unknown := set(chosen) - set(TOOLS):
        parser.error(f"no such tool: {', '.join(sorted(unknown))}")
    if "NIGHTLY" not in os.environ:
        parser.error("NIGHTLY does not name the nightly toolchain: run make sanitizers")
    sys.path.insert(0, str(ROOT / "benches"))
    import machine

    facts = machine.description()
    record: dict[str, Any] = {
        "machine": {key: facts[key] for key in MACHINE_KEYS},
        "compilers": {"loom, asan": version(), "miri, tsan": version(os.environ["NIGHTLY"])},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    LOGS.mkdir(parents=True, exist_ok=True)
    record["tools"] = {tool: run(tool) for tool in TOOLS if not chosen or tool in chosen}
    # A run of some tools does not replace one of all.
    stem = "-".join((facts["date"][:10], machine.name(), "sanitizers", *sorted(chosen)))
    (RECORDS / f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    return int(any(tool["result"] != "passed" for tool in record["tools"].values()))


if __name__ == "__main__":
    sys.exit(main())
