"""Runs the benchmarks: `python benches/run.py [--quick] [--only NAME ...] [--record DIR]`.

Each section runs in a process of its own, with the control before the first and after each; one
whose control fails is measured once more. The exit code is 0 when everything was measured, 1 when a
result was wrong or a section failed, and 3 when a control failed for good: then the run is void,
however good its figures are.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import child
import machine
import record
from table import VOID, Section, misses, render

SECTIONS = (
    *("percall", "convert", "trees", "via", "agnostic", "sparse", "tables", "threads", "files"),
    *("processes", "pickles", "feeding", "ray_objects", "dask_transfers", "extensions"),
    "instructions",
)
# The file of a section whose name is that of a package.
FILES = {"sparse": "sparse_tensors"}
# Need a GPU, so they are run by name.
GPU = ("gpu", "gpu_copies", "transfers", "gpu_files", "gpu_processes", "gpu_feeding")
# Need Ray or Dask, which have an environment of their own.
DISTRIBUTED = ("ray_objects", "dask_transfers")
DISTRIBUTED_PYTHON = Path(__file__).parents[1] / ".venv-distributed" / "bin" / "python"
# Seconds between a section and the control after it.
SETTLE = 5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ratios against the best native one-liner.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no 1 GiB, fewer pairs")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=(*SECTIONS, *GPU),
        metavar="NAME",
        default=SECTIONS,
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="where the record goes; a full run has one in benches/records anyway",
    )
    return parser.parse_args()


def given(section: str) -> dict[str, str]:
    """The environment of a section, beyond what all of them have: a GPU is shown to some."""
    if section not in GPU:
        return {}
    return {
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
        "JAX_PLATFORMS": "",
    }


def measured(name: str, quick: bool, controlled: bool) -> tuple[Section, dict[str, Any]]:
    """A section and the control after it. Where that fails, both are made once more."""
    controls: dict[str, Any] = {}
    file = FILES.get(name, name)
    for again in ("", ", again"):
        print(f"\n... {name}{again}", file=sys.stderr, flush=True)
        interpreter = str(DISTRIBUTED_PYTHON) if name in DISTRIBUTED else sys.executable
        section = Section(
            **child.call(f"{file}:run", quick, environment=given(name), interpreter=interpreter)
        )
        if not controlled:
            break
        # What a section has given back, the system clears and hands on for a while.
        time.sleep(SETTLE)
        found = child.call("control:run")
        if found["failures"] and not again:
            controls[f"after {name}, measured again"] = {**found, "repeated": True}
            continue
        controls[f"after {name}{again}"] = found
        break
    return section, controls


def main() -> int:
    options = arguments()
    facts = machine.description()
    print(record.machine_line(facts), flush=True)
    controls: dict[str, Any] = {}
    sections: dict[str, Section] = {}
    # The control is one of the host's memory, which a share on a GPU does not touch.
    controlled = not set(options.only) <= set(GPU)
    try:
        if controlled:
            controls["at the start"] = child.call("control:run")
        for name in options.only:
            sections[name], found = measured(name, options.quick, controlled)
            controls |= found
            print("\n" + render(sections[name]), flush=True)
    except child.ChildError as error:
        print(f"error: {error}; its own message is above", file=sys.stderr)
        return 1

    missed = sum(misses(section) for section in sections.values())
    if controlled:
        print(record.control_text(controls))
    print(f"\nMissed targets: {missed}.")
    full = not options.quick and options.only == SECTIONS
    folder = options.record or (Path(__file__).parent / "records" if full else None)
    if folder is not None:
        whole = set(options.only) in (set(SECTIONS), set(GPU))
        part = "" if whole else "-".join(options.only).replace("_", "-")
        written = record.write(folder, facts, sections, controls, part)
        print(f"Recorded as {written.name} and its .md twin.")
    if record.failures(controls):
        print(VOID)
        print("This run is VOID (exit code 3): the control failed, so no figure above counts.")
        print("hint: stop what else runs on this machine, and run the benchmarks again")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
