"""Whether two Python threads stand in each other's way more than the interpreter makes them.

Each thread converts a tensor of its own. The slowdown is the time in which two threads do a job
each, over the time in which one does its job alone: near 2 where the GIL is held all the time, near
1 where it is released and there is a core for each. What counts is ours over that of the native
one-liner that slows down least. A copy of ours uses one thread here.

To add a job, give it an entry in `JOBS`.
"""

import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

import child
import numpy as np
from machine import cores
from measure import Samples, Timed, expression, interleave, ratio, verdict
from table import Section

LIMIT = 1.10


@dataclass(frozen=True)
class Job:
    name: str
    elements: int
    ours: str
    native: tuple[str, ...]  # `x` is the source, `t` the same memory as a torch tensor


COPY = 'ferry.to(x, "numpy", copy=True)'
JOBS = [
    Job("share NumPy with torch", 16, 'ferry.to(x, "torch")', ("torch.from_numpy(x)",)),
    Job("share torch with NumPy", 16, 'ferry.to(t, "numpy")', ("t.numpy()",)),
    Job("copy 1 MiB", 1 << 18, COPY, ("x.copy()", "t.clone()")),
    Job("copy 16 MiB", 1 << 22, COPY, ("x.copy()", "t.clone()")),
]


def together(jobs: list[Timed]) -> Timed:
    """A job that runs each of these in a thread of its own, and ends with the last of them."""

    def timed(calls: int) -> float:
        barrier = threading.Barrier(len(jobs))
        spans: list[tuple[float, float]] = []

        def work(job: Timed) -> None:
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


def slowdowns(job: Job, names: dict[str, Any], quick: bool) -> dict[str, dict[str, Samples]]:
    """The seconds of one thread and of two, for each candidate."""
    scopes = []
    for _ in range(2):
        x = np.random.default_rng().standard_normal(job.elements, np.float32)
        scopes.append({**names, "x": x, "t": names["torch"].from_numpy(x)})
    jobs: dict[str, Timed] = {}
    for code in (job.ours, *job.native):
        for scope in scopes:
            if not np.array_equal(np.asarray(eval(code, scope)), scope["x"]):
                raise AssertionError(f"{job.name}: {code} gives other values")
        alone = [expression(code, scope) for scope in scopes]
        jobs[f"1 {code}"] = together(alone[:1])
        jobs[f"2 {code}"] = together(alone)
    samples = interleave(jobs, rounds=15 if quick else 41, batch=0.03, budget=20)
    return {
        code: {"one": samples[f"1 {code}"], "two": samples[f"2 {code}"]}
        for code in (job.ours, *job.native)
    }


def rows(quick: bool) -> list[dict[str, Any]]:
    """All jobs; called in a process in which our copies use one thread."""
    import torch

    import tensorferry as ferry

    torch.set_num_threads(1)
    names = {"ferry": ferry, "torch": torch}
    found = []
    for job in JOBS:
        by_code = slowdowns(job, names, quick)
        figures = {code: ratio(both["two"], both["one"]) for code, both in by_code.items()}
        best = min(job.native, key=lambda code: figures[code])
        beyond = figures[job.ours] / figures[best]
        found.append(
            {
                "job": job.name,
                "one thread us": by_code[job.ours]["one"].median * 1e6,
                "slowdown": figures[job.ours],
                "native slowdown": figures[best],
                "ratio": beyond,
                "target": LIMIT,
                "verdict": verdict(beyond, LIMIT),
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
            "one thread us": ",.1f",
            "slowdown": ".2f",
            "native slowdown": ".2f",
            "ratio": ".2f",
            "target": ".2f",
            "verdict": "",
            "native": "",
        },
    )
    if cores() < 2:
        section.notes.append("Not measured: this machine has one core.")
    else:
        environment = {"TENSORFERRY_THREADS": "1"}
        section.rows = child.call("threads:rows", quick, environment=environment)
    return asdict(section)
