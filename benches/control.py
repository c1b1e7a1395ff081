"""The control: is this machine, right now, fit to measure on?

A plain memcpy must reach the same speed again and again, and two threads of it must be faster than
one. Where that fails, neighbours or a thermal limit own part of the machine, and every figure of
the run is void.
"""

import statistics
from typing import Any

import numpy as np

from tensorferry._tools.bench.limits import ThreadedCopy, warm_buffers
from tensorferry._tools.bench.measure import interleave
from tensorferry._tools.bench.timings import Timing, ratio
from tensorferry._tools.machine import cores

SIZE = 256 << 20
LEAST_SCALING = 1.4
MAX_VARIATION = 0.25


def run() -> dict[str, Any]:
    """Measures; `failures` says in words what is wrong, and is empty on a machine that is fit."""
    source, destination = warm_buffers(SIZE)
    destination[:] = 0
    copier = ThreadedCopy(2, source, destination)
    timers = {"one": copier.time_single, "two": copier.time_threaded}
    found = interleave(timers, rounds=11, batch=0.05, budget=20)
    copier.stop()
    if not np.array_equal(source, destination):
        raise AssertionError("memcpy gave other bytes")
    return judge(found["one"], found["two"], cores())


def judge(one: Timing, two: Timing, available: int) -> dict[str, Any]:
    """What the figures of one and of two threads say."""
    scaling = ratio(one, two)
    varies = variation(one.rounds)
    failures = []
    if available >= 2 and scaling < LEAST_SCALING:
        failures.append(f"two threads copy {scaling:.2f} times as fast as one, not {LEAST_SCALING}")
    if varies > MAX_VARIATION:
        failures.append(
            f"one thread's memcpy varies by {varies:.0%}, more than {MAX_VARIATION:.0%}"
        )
    return {
        "GB/s, one thread": SIZE / one.median / 1e9,
        "GB/s, two threads": SIZE / two.median / 1e9,
        "scaling": scaling,
        "variation": varies,
        "failures": failures,
    }


def variation(figures: list[float]) -> float:
    """From the second smallest to the second largest figure, as a share of the median."""
    inner = sorted(figures)[1:-1]
    return (inner[-1] - inner[0]) / statistics.median(figures)
