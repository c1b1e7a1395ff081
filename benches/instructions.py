"""How many instructions a share takes, by callgrind: figures that a busy machine does not blur.

The pairs are those of `pairs.py`. One Python process under valgrind warms each pair up and counts
1,000 calls of it, three times; a loop that does nothing is taken off. The least count stands, and
the next one shows how far it can be trusted: threads of a framework may add to either.

The total moves with Python and the frameworks too; what runs inside our own shared object is what a
change of ours moves. There are no targets; the last column shows what was added to the total since
the newest record of this machine.
"""

import ctypes
import json
import shutil
import subprocess
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import child
import machine
from pairs import FRAMEWORKS, PAIRS, namespace, source
from table import Section

CALLS = 1000
ROUNDS = 3
WARM_UP = 200
OWN_OBJECT = "/tensorferry/_native"
MAX_DIFFERENCE = 0.01
SWITCH = Path(__file__).with_name("callgrind_switch.c")


def selected_pairs(quick: bool) -> list[tuple[str, str]]:
    """All of them, or those without JAX and TensorFlow, which take minutes to start here."""
    slow = {"jax", "tensorflow"}
    return [pair for pair in PAIRS if not (quick and slow & set(pair))]


def loop(names: dict[str, Any], statement: str) -> Callable[[int], None]:
    """A function that runs a statement as often as its argument says."""
    scope = dict(names)
    exec(f"def repeat(calls):\n    for _ in range(calls):\n        {statement}\n", scope)
    repeat: Callable[[int], None] = scope["repeat"]
    return repeat


def count(library: str, quick: bool) -> None:
    """Runs all loops; called under callgrind, which writes what it counts into files."""
    warnings.simplefilter("ignore")
    wanted = selected_pairs(quick)
    names = namespace({name for pair in wanted for name in pair} & {*FRAMEWORKS})
    jobs = {"nothing": loop(names, "pass")}
    for kind, target in wanted:
        scope = {**names, "x": source(kind)}
        jobs[f"{kind} {target}"] = loop(scope, f'ferry.to(x, "{target}")')
    count_jobs(library, jobs)


def count_jobs(library: str, jobs: dict[str, Callable[[int], None]]) -> None:
    """Runs each loop with the counts on; called under callgrind."""
    switch = ctypes.CDLL(library)
    for name, job in jobs.items():
        job(WARM_UP)
        for _ in range(ROUNDS):
            switch.counting_on()
            job(CALLS)
            switch.counting_off()
            switch.write_counts(name.encode())


def read_counts(path: Path) -> tuple[str, int, int]:
    """The name of a file of callgrind's, its instructions, and those in our own object.

    A line of figures is a position and a cost. The one after `calls=` is what the callee costs, and
    is counted where the callee is.
    """
    name, by_object, current, skip = "", defaultdict[str, int](int), "", False
    for line in path.read_text().splitlines():
        if line.startswith("desc: Trigger:"):
            name = line.rpartition("Client Request: ")[2].strip()
        elif line.startswith("ob="):
            current = line[3:]
        elif line.startswith("calls="):
            skip = True
        elif line[:1].isdigit():
            if not skip:
                by_object[current] += int(line.split()[1])
            skip = False
    own = sum(cost for path, cost in by_object.items() if OWN_OBJECT in path)
    return name, sum(by_object.values()), own


def measure(folder: Path, target: str, *arguments: Any) -> dict[str, list[tuple[int, int]]]:
    """Instructions, in all and in our own object, of each turn of each job of a function."""
    library = folder / "switch.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, SWITCH], check=True)
    options = ["--tool=callgrind", "--instr-atstart=no", "--quiet", "--compress-strings=no"]
    options += ["--compress-pos=no", f"--callgrind-out-file={folder / 'counts'}"]
    child.call(
        target,
        str(library),
        *arguments,
        environment={"PYTHONHASHSEED": "0", "TENSORFERRY_THREADS": "1"},
        prefix=["valgrind", *options],
    )
    counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for path in sorted(folder.glob("counts.*"), key=lambda path: int(path.suffix[1:])):
        name, everything, own = read_counts(path)
        counts[name].append((everything, own))
    return counts


def missing() -> str | None:
    """What this machine lacks to count instructions."""
    for tool in ("valgrind", "gcc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = subprocess.run(["gcc", "-fsyntax-only", SWITCH], capture_output=True, check=False)
    return "valgrind's headers are not installed" if probe.returncode != 0 else None


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "Instructions of one share, by callgrind",
        {
            "from": "",
            "to": "",
            "all": ",.0f",
            "in tensorferry": ",.0f",
            "difference": ".2%",
            "added": "+.1%",
        },
        notes=[
            "All: with Python and the frameworks. Difference: from the least count to the next."
        ],
    )
    commit, before = last_record()
    if before:
        section.notes.append(f"Added: to all, since the record of commit {commit}.")
    if lacks := missing():
        section.notes = [f"Not measured: {lacks}."]
        return asdict(section)
    with tempfile.TemporaryDirectory() as folder:
        counts = measure(Path(folder), "instructions:count", quick)
    nothing = min(everything for everything, _ in counts.pop("nothing"))
    for name, turns in counts.items():
        kind, target = name.split()
        totals = [(everything - nothing) / CALLS for everything, _ in turns]
        own = [inside / CALLS for _, inside in turns]
        difference = max(apart(totals), apart(own))
        section.rows.append(
            {
                "from": kind,
                "to": target,
                "all": min(totals),
                "in tensorferry": min(own),
                "difference": difference,
                "added": min(totals) / before[name] - 1 if name in before else None,
            }
        )
        if difference > MAX_DIFFERENCE:
            section.notes.append(f"{kind} to {target} differs by more than {MAX_DIFFERENCE:.0%}.")
    if quick:
        section.notes.append("Not measured in a quick run: the pairs with JAX and TensorFlow.")
    return asdict(section)


def last_record() -> tuple[str, dict[str, float]]:
    """The commit of the newest record of this machine, and its totals by pair."""
    folder = Path(__file__).with_name("records")
    for path in sorted(folder.glob(f"*-{machine.name()}.json"), reverse=True):
        kept = json.loads(path.read_text())
        rows = kept["sections"].get("instructions", {}).get("rows", [])
        if rows:
            totals = {f"{row['from']} {row['to']}": row["all"] for row in rows}
            return kept["machine"]["commit"], totals
    return "", {}


def apart(figures: list[float]) -> float:
    """From the least figure to the next, as a share of the least."""
    least, following = sorted(figures)[:2]
    return (following - least) / least
