"""Fuzzes the parsers: `python fuzz/run.py [--seconds N] [--only NAME ...] [--record DIR]`.

Every target starts from the files in tests/files/corpus and the inputs that earlier runs found. The
targets run one after another on one core. The exit code is 1 when a target failed; the input that
made it fail is in fuzz/artifacts. Needs the nightly toolchain and cargo-fuzz (`cargo install
cargo-fuzz`).
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

# The corpus files that seed each target. Data from other processes and Arrow's structs have none.
SEEDS = {
    "npy": "*.npy",
    "npz": "*.npz",
    "safetensors": "*.safetensors",
    "index": "*.index.json",
    "tensorproto": "*.pb",
    "share_protocol": "",
    "arrow": "",
}
CARGO = ("cargo", f"+{os.environ.get('NIGHTLY', 'nightly')}", "fuzz")


def fuzz(target: str, seconds: int) -> dict[str, Any]:
    """Runs a target for some seconds, and returns its statistics."""
    corpus = ROOT / "fuzz" / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in (ROOT / "tests" / "files" / "corpus").rglob(SEEDS[target]) if SEEDS[target] else ():
        shutil.copy(seed, corpus / seed.name)
    command = [*CARGO, "run", target, "--", f"-max_total_time={seconds}", "-print_final_stats=1"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    log = process.stderr
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", log) or [("0", "0", "0")]
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
    duration = re.search(r"Done \d+ runs in (\d+) second", log)
    statistics = {
        "seconds": int(duration[1]) if duration else None,
        "executions": int(executed[1]) if executed else None,
        "edges covered": int(coverage[-1][0]),
        "features": int(coverage[-1][1]),
        "files kept": int(coverage[-1][2]),
        "failed": process.returncode != 0,
    }
    if process.returncode:
        print(log[-4000:], file=sys.stderr)
    return statistics


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzzes the parsers of files.")
    parser.add_argument("--seconds", type=int, default=60, help="run time of each target (60)")
    parser.add_argument("--only", nargs="+", choices=SEEDS, metavar="NAME", default=list(SEEDS))
    parser.add_argument("--record", type=Path, metavar="DIR", help="where to record the run")
    options = parser.parse_args()

    facts = machine.description()
    subprocess.run([*CARGO, "build"], cwd=ROOT, check=True)
    results: dict[str, dict[str, Any]] = {}
    for target in options.only:
        results[target] = fuzz(target, options.seconds)
        print(f"{target}: {results[target]}", flush=True)
    if options.record is not None:
        options.record.mkdir(parents=True, exist_ok=True)
        path = options.record / f"{facts['date'][:10]}-{machine.name()}-fuzz.json"
        seconds = sum(each["seconds"] or 0 for each in results.values())
        path.write_text(
            json.dumps({"machine": facts, "seconds": seconds, "targets": results}, indent=1) + "\n"
        )
        print(f"Recorded as {path.name}.")
    return int(any(each["failed"] for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
