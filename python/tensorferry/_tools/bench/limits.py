"""What moving bytes costs at the least here: memcpy, and copies between pinned memory and a GPU.

Into memory that is there already and warm: no conversion that copies can be quicker.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensorferry._tools import machine
from tensorferry._tools.bench.cuda import Driver
from tensorferry._tools.bench.measure import Job, Timing, take_turns

# From here on more than one thread is of use.
THREADED = 4 << 20
MOST_THREADS = 16
# A copy is a copy: more time tells no more about it.
MOST_SECONDS = 0.2

Limits = dict[str, list[dict[str, Any]]]


def measure(sizes: Sequence[int], seconds: float, driver: Driver | None) -> Limits:
    """Seconds for each size: memcpy, and with a GPU uploads and downloads."""
    found: Limits = {"memcpy": []}
    seconds = min(seconds, MOST_SECONDS)
    for size in sizes:
        with _memcpy(size) as jobs:
            times = take_turns(jobs, seconds)
        found["memcpy"].append(_entry(size, *times.values()))
        if driver is None:
            continue
        with _transfers(driver, size) as jobs:
            for name, timing in take_turns(jobs, seconds).items():
                found.setdefault(name, []).append(_entry(size, timing))
    return found


def _entry(size: int, *times: Timing) -> dict[str, Any]:
    return {"bytes": size, "seconds": min(timing.quartiles[0] for timing in times)}


@contextmanager
def _memcpy(size: int) -> Iterator[dict[str, Job]]:
    """Jobs that copy warm memory, by one thread and, where it is long, by as many as there are."""
    source = np.arange(size // 8 + 1, dtype=np.uint64).view(np.uint8)[:size]
    target = source.copy()
    count = min(machine.cores(), MOST_THREADS) if size >= THREADED else 1
    crew = Crew(count, source, target)
    jobs: dict[str, Job] = {"one": crew.alone}
    if count > 1:
        jobs["many"] = crew.together
    try:
        yield jobs
    finally:
        crew.leave()


class Crew:
    """Threads that stay from call to call and copy a part each; the caller is one of them."""

    def __init__(
        self, count: int, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]
    ) -> None:
        # Kept, because a thread may be at it yet when the caller is interrupted.
        self._memory = (source, target)
        self._source, self._target = source.ctypes.data, target.ctypes.data
        self._size = source.nbytes
        self._part = -(-self._size // count // 64) * 64
        self._begins, self._ends = threading.Barrier(count), threading.Barrier(count)
        self._calls = 0
        for number in range(1, count):
            threading.Thread(target=self._help, args=(number * self._part,), daemon=True).start()

    def alone(self, calls: int) -> float:
        """The caller copies everything."""
        begin = time.perf_counter()
        for _ in range(calls):
            ctypes.memmove(self._target, self._source, self._size)
        return time.perf_counter() - begin

    def together(self, calls: int) -> float:
        """Each copies its part."""
        self._calls = calls
        self._begins.wait()
        begin = time.perf_counter()
        self._copy(0)
        self._ends.wait()
        return time.perf_counter() - begin

    def leave(self) -> None:
        """Sends the threads home."""
        self._begins.abort()
        self._ends.abort()

    def _copy(self, first: int) -> None:
        length = max(0, min(self._part, self._size - first))
        for _ in range(self._calls):
            ctypes.memmove(self._target + first, self._source + first, length)

    def _help(self, first: int) -> None:
        while True:
            try:
                self._begins.wait()
                self._copy(first)
                self._ends.wait()
            except threading.BrokenBarrierError:
                return


@contextmanager
def _transfers(driver: Driver, size: int) -> Iterator[dict[str, Job]]:
    with driver.buffers(size) as (pinned, there):

        def job(begin_copy: Callable[[], None]) -> Job:
            def timed(calls: int) -> float:
                driver.synchronise()
                begin = time.perf_counter()
                for _ in range(calls):
                    begin_copy()
                driver.synchronise()
                return time.perf_counter() - begin

            return timed

        yield {
            "upload": job(lambda: driver.upload(there, pinned, size)),
            "download": job(lambda: driver.download(pinned, there, size)),
        }
