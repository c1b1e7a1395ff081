"""What moving bytes costs: copies, packing, casts and byte swaps, by size and thread count.

The jobs are in `conversions.py`.

Each thread count has a process of its own, because ours is read once in a process. It imports what
is needed, makes the sources and runs nothing; everything else happens in forks of it, so that each
fork begins with no pool, no warm memory and no threads:

- first: the first call of each candidate, alone in a fork of its own;
- kept: results that stay alive, so that each needs fresh memory;
- dropped: results that are dropped at once, so that memory may be used again.

The ratio to memcpy compares dropped results with a warm memcpy of the source's bytes in as many
threads; where the result is larger than the source, of as many bytes as the job moves, that is,
half the sum of source and result.
"""

import mmap
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import child
import numpy as np
import torch
from conversions import JOBS, Job, as_torch, bits
from table import MISSED, PASSED, Section

import tensorferry as ferry
from tensorferry._tools.bench.limits import ThreadedCopy, warm_buffers
from tensorferry._tools.bench.measure import Timer, interleave, interleave_cold, make_timer
from tensorferry._tools.bench.timings import Timing, join, quickest, ratio, spread
from tensorferry._tools.machine import cores, free_memory

MIB = 1 << 20
SIZES = (1, 64, 1024)
FIRST_CALLS = 3
FRESH_PROCESSES = 3
# Jobs that touch every byte that they read and write once, in order: a memcpy can be held against
# those.
STREAMING = {job.name for job in JOBS} - {"transposed", "every second"}
MAX_MEMORY_FRACTION = 0.7
MEMCPY_LIMIT = 256 * MIB  # longer ones are no faster: what they take follows from the length


def back_free_memory(size: int) -> None:
    """Touches `size` bytes of free memory once, and releases them.

    The host of a virtual machine provides memory at the first touch, which takes several times as
    long as a page fault. No measured method should pay for that.
    """
    memory = mmap.mmap(-1, max(size, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    view = np.frombuffer(memory, np.uint8)
    view.fill(1)
    del view
    memory.close()


def limits(job: str, mib: int, threads: int) -> dict[str, float]:
    """The targets: the most that a ratio may be, by its name in the row."""
    found = {"dropped": 1.10}
    if job == "transposed":
        found["dropped to torch"] = 1 / 3 if mib >= 64 else 1 / 2.5
    if mib >= 64 and job in STREAMING:
        found["to memcpy"] = 1.20
    if job == "dense copy" and mib >= 64 and threads == 2:
        found["first to NumPy"] = 1 / 1.5
    return found


def check(job: Job, names: dict[str, Any]) -> None:
    """All candidates give the bits that NumPy gives, and none of them shares."""
    expected = bits(eval(job.numpy, names))
    for candidate in (job.ours, job.torch):
        found = bits(eval(candidate, names))
        if not np.array_equal(found, expected):
            raise AssertionError(f"{job.name}: {candidate} gives other values than NumPy")
        if np.may_share_memory(found, names["x"]):
            raise AssertionError(f"{job.name}: {candidate} shares where a copy was asked for")


def measure(job: Job, mib: int, threads: int, quick: bool) -> dict[str, Any]:
    """All three ways for one job and size; called in a process that has only made its imports."""
    x = job.source(mib * MIB)
    names = {"ferry": ferry, "torch": torch, "x": x, "t": as_torch(x)}
    candidates = {"ours": job.ours, "NumPy": job.numpy, "torch": job.torch}
    moved = int(x.nbytes * max(1, (1 + job.result) / 2))

    def first(code: str) -> Timer:
        """A timer that makes its calls in a fork of its own."""

        def call(calls: int) -> float:
            torch.set_num_threads(threads)
            return make_timer(code, names)(calls)

        return lambda calls: child.forked(partial(call, calls))

    def warm() -> dict[str, dict[str, Timing]]:
        torch.set_num_threads(threads)
        kept: list[Any] = []
        jobs: dict[str, Timer] = {
            name: make_timer(f"keep({code})", {**names, "keep": kept.append})
            for name, code in candidates.items()
        }
        fit = int(free_memory() / 2 / (x.nbytes * job.result) / len(jobs))
        rounds = max(1, min(fit, 16))
        back_free_memory(int(rounds * x.nbytes * job.result) * len(jobs))
        fresh = interleave_cold(jobs, rounds=rounds)
        kept.clear()
        check(job, names)
        jobs = {name: make_timer(code, names) for name, code in candidates.items()}
        copier = ThreadedCopy(threads, *warm_buffers(min(moved, MEMCPY_LIMIT)))
        jobs["memcpy"] = copier.time_threaded
        budget = (1 if quick else 3) * (4 if mib > 64 else 1)
        # Long enough for the threads of the memcpy to be all at it.
        pooled = interleave(jobs, rounds=31, batch=0.004 if mib == 1 else 0.03, budget=budget)
        check(job, names)
        return {"kept": fresh, "dropped": pooled}

    back_free_memory(int(x.nbytes * job.result))
    forks = {name: first(code) for name, code in candidates.items()}
    figures = {"first": interleave_cold(forks, rounds=FIRST_CALLS)}
    # Where memory happens to lie matters most for what just fits in a cache: several processes.
    found = [child.forked(warm) for _ in range(FRESH_PROCESSES if mib == 1 else 1)]
    for way in found[0]:
        figures[way] = {
            name: join(Timing(*one[way][name]) for one in found) for name in found[0][way]
        }
    scale, copies = moved / min(moved, MEMCPY_LIMIT), figures["dropped"]["memcpy"]
    scaled = [seconds * scale for seconds in copies.rounds]
    figures["dropped"]["memcpy"] = Timing(scaled, copies.calls)
    return {"job": job.name, "MiB": mib, "threads": threads, **ratios(figures, x.nbytes)}


def ratios(figures: dict[str, dict[str, Timing]], size: int) -> dict[str, Any]:
    """The columns of the table, from the seconds of each way and candidate."""
    row: dict[str, Any] = {}
    for way, samples in figures.items():
        peers = {name: samples[name] for name in ("NumPy", "torch")}
        best = quickest(peers)
        row[f"{way} GB/s"] = {name: size / s.median / 1e9 for name, s in samples.items()}
        row[way] = ratio(samples["ours"], samples[best])
        row[f"{way} spread"] = spread(samples["ours"], samples[best])
        row[f"{way} to NumPy"] = ratio(samples["ours"], samples["NumPy"])
        row[f"{way} to torch"] = ratio(samples["ours"], samples["torch"])
        if way == "dropped":
            row["GB/s"] = row["dropped GB/s"]["ours"]
            row["peer GB/s"] = row["dropped GB/s"][best]
            row["peer"] = best
            row["to memcpy"] = ratio(samples["ours"], samples["memcpy"])
    return row


def verdict(row: dict[str, Any]) -> str:
    found = limits(row["job"], row["MiB"], row["threads"])
    missed = [
        f"{name} {row[name]:.2f} > {most:.2f}" for name, most in found.items() if row[name] > most
    ]
    return f"{MISSED} {', '.join(missed)}" if missed else PASSED


def with_threads(threads: int, quick: bool) -> dict[str, Any]:
    """Everything with one thread count: the rows, and what was left out."""
    rows, left_out = [], []
    for job, mib in _jobs(quick):
        memory = mib * MIB * (job.base + 3 * job.result) + 2 * MEMCPY_LIMIT
        if memory > free_memory() * MAX_MEMORY_FRACTION:
            left_out.append(
                f"Not measured: {job.name} of {mib} MiB needs {memory / 2**30:.1f} GiB, "
                f"more than {MAX_MEMORY_FRACTION:.0%} of the free memory."
            )
            continue
        row = measure(job, mib, threads, quick)
        rows.append({**row, "verdict": verdict(row)})
    return {"rows": rows, "left out": left_out}


def _jobs(quick: bool) -> Iterator[tuple[Job, int]]:
    for job in JOBS:
        for mib in SIZES[:-1] if quick else SIZES:
            yield job, mib


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "Copies and casts: seconds of ours for each second of the better of NumPy and torch",
        {
            "job": "",
            "MiB": "d",
            "threads": "d",
            "GB/s": ".1f",
            "peer GB/s": ".1f",
            "peer": "",
            "dropped": ".2f",
            "kept": ".2f",
            "first": ".2f",
            "to memcpy": ".2f",
            "verdict": "",
        },
        notes=[
            "GB/s are of source bytes, for results that are dropped at once. To memcpy: against "
            "one of the source's bytes, or of half of what the job moves where that is more. Kept "
            "results, each in fresh memory, and first calls are shown; the one target among them "
            "is that of a first dense copy with two threads."
        ],
    )
    for threads in (1, 2):
        if threads > cores():
            section.notes.append("Not measured: two threads, on a machine with one core.")
            continue
        environment = {"TENSORFERRY_THREADS": str(threads)}
        found = child.call("convert:with_threads", threads, quick, environment=environment)
        section.rows += found["rows"]
        section.notes += [note for note in found["left out"] if note not in section.notes]
    section.rows.sort(key=lambda row: ([job.name for job in JOBS].index(row["job"]), row["MiB"]))
    return asdict(section)
