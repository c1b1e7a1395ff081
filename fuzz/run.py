"""Fuzzes the parsers: `python fuzz/run.py [--seconds N] [--only NAME ...] [--record DIR]`.

Every target starts from the files of other programs in tests/files/corpus and from what earlier
runs have found, one target after another, on one core. The exit code is 0 when nothing was found, 1
when a target failed: the file that made it fail lies in fuzz/artifacts. Needs the nightly toolchain
and cargo-fuzz (`cargo install cargo-fuzz`).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches"))

import machine  # noqa: E402

# Which files of the corpus each target begins with; messages of other processes are no files.
SEEDS = {
    "npy": "*.npy",
    "npz": "*.npz",
    "safetensors": "*.safetensors",
    "index": "*.index.json",
    "tensorproto": "*.pb",
    "messages": "",
}
CARGO = ("cargo", f"+{os.environ.get('NIGHTLY', 'nightly')}", "fuzz")


def fuzz(target: str, seconds: int) -> dict[str, Any]:
    """Runs a target for so long, and says how far it came."""
    corpus = ROOT / "fuzz" / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in (ROOT / "tests" / "files" / "corpus").rglob(SEEDS[target]) if SEEDS[target] else ():
        shutil.copy(seed, corpus / seed.name)
    command = [*CARGO, "run", target, "--", f"-max_total_time={seconds}", "-print_final_stats=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    said = done.stderr
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", said) or [("0", "0", "0")]
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    lasted = re.search(r"Done \d+ runs in (\d+) second", said)
    found = {
        "seconds": int(lasted[1]) if lasted else None,
        "executions": int(executed[1]) if executed else None,
        "edges covered": int(coverage[-1][0]),
        "features": int(coverage[-1][1]),
        "files kept": int(coverage[-1][2]),
        "failed": done.returncode != 0,
    }
    if done.returncode:
        print(said[-4000:], file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzzes the parsers of files.")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (60)")
    parser.add_argument("--only", nargs="+", choices=SEEDS, metavar="NAME", default=list(SEEDS))
    parser.add_argument("--record", type=Path, metavar="DIR", help="where a record of the run goes")
    options = parser.parse_args()

    facts = machine.facts()
    subprocess.run([*CARGO, "build"], cwd=ROOT, check=True)
    found: dict[str, dict[str, Any]] = {}
    for target in options.only:
        found[target] = fuzz(target, options.seconds)
        print(f"{target}: {found[target]}", flush=True)
    if options.record is not None:
        options.record.mkdir(parents=True, exist_ok=True)
        path = options.record / f"{facts['date'][:10]}-{machine.name()}-fuzz.json"
        seconds = sum(each["seconds"] or 0 for each in found.values())
        path.write_text(
            json.dumps({"machine": facts, "seconds": seconds, "targets": found}, indent=1) + "\n"
        )
        print(f"Recorded as {path.name}.")
    return int(any(each["failed"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
