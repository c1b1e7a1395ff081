"""The control: is this machine, right now, fit to measure on?

A plain memcpy must reach the same speed again and again, and two threads of it must be faster than
one. Where that fails, neighbours or a thermal limit own part of the machine, and every figure of
the run is void.
"""

import ctypes
import threading
import time
from typing import Any

import numpy as np
from machine import cores
from measure import Samples, Timed, interleave, ratio, variation

SIZE = 256 << 20
LEAST_SCALING = 1.4
MAX_VARIATION = 0.25


def warm_buffers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Two buffers, the first of random bytes, both touched."""
    block = np.frombuffer(np.random.default_rng().bytes(min(size, 1 << 24)), np.uint8)
    source = np.resize(block, size)
    return source, source.copy()


def memcpy(source: np.ndarray, destination: np.ndarray, threads: int) -> Timed:
    """A job that copies one buffer to the other, each thread its part, with the GIL released.

    The threads stay from one call of the job to the next, as those of whoever is measured beside it
    do, and the caller is one of them.
    """
    part = source.nbytes // threads
    begins, ends = threading.Barrier(threads), threading.Barrier(threads)
    asked = [0]

    def copy(offset: int) -> None:
        to, from_ = destination.ctypes.data + offset, source.ctypes.data + offset
        for _ in range(asked[0]):
            ctypes.memmove(to, from_, part)

    def help_out(offset: int) -> None:
        while True:
            begins.wait()
            copy(offset)
            ends.wait()

    for number in range(1, threads):
        threading.Thread(target=help_out, args=(number * part,), daemon=True).start()

    def timed(calls: int) -> float:
        asked[0] = calls
        begins.wait()
        begin = time.perf_counter()
        copy(0)
        ends.wait()
        return time.perf_counter() - begin

    return timed


def run() -> dict[str, Any]:
    """Measures; `failures` says in words what is wrong, and is empty on a machine that is fit."""
    source, destination = warm_buffers(SIZE)
    jobs = {"one": memcpy(source, destination, 1), "two": memcpy(source, destination, 2)}
    samples = interleave(jobs, rounds=11, batch=0.05, budget=20)
    if not np.array_equal(source, destination):
        raise AssertionError("memcpy gave other bytes")
    return judge(samples["one"], samples["two"], cores())


def judge(one: Samples, two: Samples, available: int) -> dict[str, Any]:
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
