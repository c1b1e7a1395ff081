"""What a feed costs per batch: an empty loop over `ferry.feed`, beside `ferry.to` in the loop.

The body of the loop is empty, so there is nothing for the feeder's thread to overlap with, and all
that the thread, the queue and the hand-over cost is in the figure. Both convert the same
batches in alternating rounds, one epoch in each; the start of the thread is in the time.
`gpu_feeding.py` measures what a feed gains. To add a job, give it an entry in `JOBS`.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import asdict
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from table import Section, verdict

import tensorferry as ferry
from tensorferry._tools.bench.measure import Timer, interleave_cold
from tensorferry._tools.bench.timings import Timing, difference

MIB = 1 << 20
# By size of a batch: the batches of an epoch.
SIZES = {MIB: 128, 16 * MIB: 24, 64 * MIB: 8}
MAX_EXTRA_SECONDS = 100e-6


class Job(NamedTuple):
    """A loader, and the framework that its batches are converted to."""

    name: str
    framework: str
    # From the arrays and the number of batches.
    loader: Callable[[list[np.ndarray], int], Iterable[Any]]


def cycled(arrays: list[np.ndarray], count: int) -> list[np.ndarray]:
    """A list of `count` batches that repeats a few arrays."""
    return list(itertools.islice(itertools.cycle(arrays), count))


def generated(arrays: list[np.ndarray], count: int) -> Iterable[np.ndarray]:
    yield from cycled(arrays, count)


def data_loader(arrays: list[np.ndarray], count: int) -> Iterable[Any]:
    """PyTorch's, without workers; it stacks each batch from two halves."""
    from torch.utils.data import DataLoader

    halves = [half for array in arrays for half in np.split(array, 2)]
    return DataLoader(cycled(halves, 2 * count), batch_size=2)  # type: ignore[arg-type]


JOBS = (
    Job("list of NumPy arrays, shared", "torch", cycled),
    Job("list of NumPy arrays, copied", "jax", cycled),
    Job("generator of NumPy arrays, copied", "jax", generated),
    Job("DataLoader without workers, shared", "jax", data_loader),
)


def convert_in_loop(loader: Iterable[Any], framework: str) -> float:
    begin = perf_counter()
    for batch in loader:
        batch = ferry.to(batch, framework)
    return perf_counter() - begin


def feed_loop(loader: Iterable[Any], framework: str) -> float:
    begin = perf_counter()
    for _batch in ferry.feed(loader, framework):
        pass
    return perf_counter() - begin


def check(job: Job, arrays: list[np.ndarray]) -> None:
    count = len(arrays) + 1
    found = list(ferry.feed(job.loader(arrays, count), job.framework))
    expected = cycled(arrays, count)
    for batch, array in zip(found, expected, strict=True):
        if not np.array_equal(ferry.to(batch, "numpy").reshape(-1), array.reshape(-1)):
            raise AssertionError(f"{job.name}: other values")


def measure(job: Job, arrays: list[np.ndarray], count: int, rounds: int) -> dict[str, Any]:
    """Seconds per batch of both; a round is an epoch of each."""
    check(job, arrays)

    def timer(loop: Callable[[Iterable[Any], str], float]) -> Timer:
        return lambda _calls: loop(job.loader(arrays, count), job.framework)

    timers = {"to": timer(convert_in_loop), "feed": timer(feed_loop)}
    # The first round is a warm-up.
    epochs = interleave_cold(timers, rounds=rounds + 1)
    found = {
        name: Timing([seconds / count for seconds in timing.rounds[1:]], rounds * count)
        for name, timing in epochs.items()
    }
    extra = difference(found["feed"], found["to"])
    return {
        "job": job.name,
        "to": job.framework,
        "bytes": f"{arrays[0].nbytes // MIB} MiB",
        "in the loop us": found["to"].median * 1e6,
        "feed us": found["feed"].median * 1e6,
        "extra us": extra * 1e6,
        "target": MAX_EXTRA_SECONDS * 1e6,
        "verdict": verdict(extra <= MAX_EXTRA_SECONDS),
    }


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "A feed with an empty loop, against ferry.to in the loop",
        {
            "job": "",
            "to": "",
            "bytes": "",
            "in the loop us": ",.1f",
            "feed us": ",.1f",
            "extra us": ",.1f",
            "target": ",.0f",
            "verdict": "",
        },
        notes=["Microseconds per batch. The extra time is the median of the rounds' differences."],
    )
    generator = np.random.default_rng(27)
    for size, count in SIZES.items():
        arrays = [generator.random(size // 4, np.float32).reshape(2, -1) for _ in range(4)]
        for job in JOBS:
            section.rows.append(measure(job, arrays, count, 7 if quick else 31))
    return asdict(section)
