"""Whether two Python threads stand in each other's way more than the machine makes them.

Each thread converts a tensor of its own. The slowdown is the time in which two threads do a job
each, over the time in which one does its job alone: near 2 where the GIL is held all the time, near
1 where it is released and there is a core, and memory to feed it, for each.

What nobody can help is measured in the same rounds. For shares it is the GIL, as the native
one-liner has it: the ratio is that of the two slowdowns. For copies it is the memory: two threads
that copy into warm memory with `numpy.copyto` have a core each and nothing else to do, and the
ratio is the time of two callers of ours to theirs. (The slowdowns say less there: who is quicker
alone, by more threads or by better use of the memory, is slowed down more.) Beside it stands
whether two callers of ours are done before two of the quickest native one-liner.

A full run measures in three processes, and the middle figure of each row stands.

To add a job, give it an entry in `SHARES` or `COPIES`.
"""

import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

import child
import numpy as np
from table import Section, verdict

from tensorferry._tools.bench.measure import Timer, interleave, make_timer
from tensorferry._tools.bench.timings import Timing, ratio
from tensorferry._tools.machine import cores

LIMIT = 1.10


@dataclass(frozen=True)
class Job:
    name: str
    elements: int
    ours: str
    native: tuple[str, ...]  # `x` is the source, `t` the same memory as a torch tensor
    yardstick: str  # `w` is warm memory


COPY = 'ferry.to(x, "numpy", copy=True)'
FROM_NUMPY = "torch.from_numpy(x)"
SHARES = [
    Job(
        "share NumPy with torch",
        16,
        'ferry.to(x, "torch")',
        ("torch.from_numpy(x)",),
        "torch.from_numpy(x)",
    ),
    Job("share torch with NumPy", 16, 'ferry.to(t, "numpy")', ("t.numpy()",), "t.numpy()"),
]
COPIES = [
    Job("copy 1 MiB", 1 << 18, COPY, ("x.copy()", "t.clone()"), "np.copyto(w, x)"),
    Job("copy 16 MiB", 1 << 22, COPY, ("x.copy()", "t.clone()"), "np.copyto(w, x)"),
]


def together(jobs: list[Timer]) -> Timer:
    """A job that runs each of these in a thread of its own, and ends with the last of them."""

    def timed(calls: int) -> float:
        barrier = threading.Barrier(len(jobs))
        spans: list[tuple[float, float]] = []

        def work(job: Timer) -> None:
            barrier.wait()
            begin = time.perf_counter()
            job(calls)
            spans.append((begin, time.perf_counter()))

        workers = [threading.Thread(target=work, args=(job,)) for job in jobs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return max(end for _, end in spans) - min(begin for begin, _ in spans)

    return timed


def slowdowns(job: Job, names: dict[str, Any], quick: bool) -> dict[str, dict[str, Timing]]:
    """The seconds of one thread and of two, for each candidate."""
    scopes = []
    for _ in range(2):
        x = np.random.default_rng().standard_normal(job.elements, np.float32)
        w = x.copy()
        scopes.append({**names, "x": x, "t": names["torch"].from_numpy(x), "w": w})
    jobs: dict[str, Timer] = {}
    for code in dict.fromkeys((job.ours, *job.native, job.yardstick)):
        for scope in scopes:
            result = eval(code, scope)
            if not np.array_equal(np.asarray(scope["w"] if result is None else result), scope["x"]):
                raise AssertionError(f"{job.name}: {code} gives other values")
        alone = [make_timer(code, scope) for scope in scopes]
        jobs[f"1 {code}"] = together(alone[:1])
        jobs[f"2 {code}"] = together(alone)
    samples = interleave(jobs, rounds=15 if quick else 41, batch=0.03, budget=20)
    return {
        code: {"one": samples[f"1 {code}"], "two": samples[f"2 {code}"]}
        for code in dict.fromkeys((job.ours, *job.native, job.yardstick))
    }


def rows(quick: bool, threads: int) -> list[dict[str, Any]]:
    """The jobs for a number of threads, in a process in which our copies use the same number."""
    import torch

    import tensorferry as ferry

    torch.set_num_threads(threads)
    names = {"ferry": ferry, "torch": torch, "np": np}
    found = []
    for job in SHARES + COPIES if threads == 1 else COPIES:
        by_code = slowdowns(job, names, quick)
        figures = {code: ratio(pair["two"], pair["one"]) for code, pair in by_code.items()}
        both = {code: samples["two"] for code, samples in by_code.items()}
        if job in COPIES:
            beyond = ratio(both[job.ours], both[job.yardstick])
        else:
            beyond = figures[job.ours] / figures[job.yardstick]
        best = min(job.native, key=lambda code: both[code].median)
        against = ratio(both[job.ours], both[best])
        found.append(
            {
                "job": job.name,
                "threads of a copy": threads,
                "one caller us": by_code[job.ours]["one"].median * 1e6,
                "slowdown": figures[job.ours],
                "yardstick slowdown": figures[job.yardstick],
                "ratio": beyond,
                "two callers to native": against,
                "target": LIMIT,
                "verdict": verdict(max(beyond, against) <= LIMIT),
                "native": f"`{best}`",
                "all slowdowns": figures,
            }
        )
    return found


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "Two Python threads, a job each, against one thread alone",
        {
            "job": "",
            "threads of a copy": "d",
            "one caller us": ",.1f",
            "slowdown": ".2f",
            "yardstick slowdown": ".2f",
            "ratio": ".2f",
            "two callers to native": ".2f",
            "target": ".2f",
            "verdict": "",
            "native": "",
        },
    )
    if cores() < 2:
        section.notes.append("Not measured: this machine has one core.")
    else:
        for threads in (1, 2):
            environment = {"TENSORFERRY_THREADS": str(threads)}
            section.rows += child.middle(
                "threads:rows",
                quick,
                threads,
                by=lambda row: max(row["ratio"], row["two callers to native"]),
                times=1 if quick else 3,
                environment=environment,
            )
    return asdict(section)
