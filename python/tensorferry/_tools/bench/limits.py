"""Lower bounds of this machine: memcpy, and copies between pinned memory and a GPU.

The copies use allocated, warm memory, so no conversion that copies can be faster.
"""

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensorferry._tools import machine
from tensorferry._tools.bench.cuda import Driver
from tensorferry._tools.bench.measure import Timer, make_timer, time_alternating
from tensorferry._tools.bench.timings import Timing

# Several threads are faster from this size on.
MIN_THREADED_BYTES = 4 << 20
MAX_THREADS = 16
# Longer measurements of a copy are not more precise.
MAX_SECONDS = 0.2
# Random bytes take long to make, so larger buffers repeat a block of them.
RANDOM_BLOCK_BYTES = 16 << 20

Limits = dict[str, list[dict[str, Any]]]


def measure(sizes: Sequence[int], seconds: float, driver: Driver | None) -> Limits:
    """Seconds for each size: memcpy, and with a GPU uploads and downloads."""
    found: Limits = {"memcpy": []}
    seconds = min(seconds, MAX_SECONDS)
    for size in sizes:
        with _memcpy(size) as timers:
            times = time_alternating(timers, seconds)
        found["memcpy"].append(_entry(size, *times.values()))
        if driver is None:
            continue
        with _transfers(driver, size) as timers:
            for name, timing in time_alternating(timers, seconds).items():
                found.setdefault(name, []).append(_entry(size, timing))
    return found


def control_ratio(found: Limits, seconds: float) -> float:
    """The time of the largest memcpy of a measurement now, divided by its time then."""
    before = max(found["memcpy"], key=lambda entry: int(entry["bytes"]))
    now = measure([before["bytes"]], seconds, None)["memcpy"][0]
    return float(now["seconds"] / before["seconds"])


def _entry(size: int, *times: Timing) -> dict[str, Any]:
    return {"bytes": size, "seconds": min(timing.quartiles[0] for timing in times)}


def warm_buffers(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two buffers of the same random bytes, whose pages are all touched."""
    block = np.frombuffer(np.random.default_rng().bytes(min(size, RANDOM_BLOCK_BYTES)), np.uint8)
    source = np.resize(block, size)
    return source, source.copy()


@contextmanager
def _memcpy(size: int) -> Iterator[dict[str, Timer]]:
    """Timers of a copy of warm memory, by one thread and, for large copies, by several."""
    count = min(machine.cores(), MAX_THREADS) if size >= MIN_THREADED_BYTES else 1
    copier = ThreadedCopy(count, *warm_buffers(size))
    timers: dict[str, Timer] = {"one": copier.time_single}
    if count > 1:
        timers["many"] = copier.time_threaded
    try:
        yield timers
    finally:
        copier.stop()


class ThreadedCopy:
    """A copy by persistent threads, each of which copies a block; the caller is one of them."""

    def __init__(
        self, count: int, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]
    ) -> None:
        # Keeps the arrays alive: a thread may still copy when the caller is interrupted.
        self._memory = (source, target)
        self._source, self._target = source.ctypes.data, target.ctypes.data
        self._size = source.nbytes
        self._block_bytes = -(-self._size // count // 64) * 64
        self._begins, self._ends = threading.Barrier(count), threading.Barrier(count)
        self._calls = 0
        for number in range(1, count):
            threading.Thread(
                target=self._copy_in_thread, args=(number * self._block_bytes,), daemon=True
            ).start()

    def time_single(self, calls: int) -> float:
        """Times copies by the calling thread."""
        begin = time.perf_counter()
        for _ in range(calls):
            ctypes.memmove(self._target, self._source, self._size)
        return time.perf_counter() - begin

    def time_threaded(self, calls: int) -> float:
        """Times copies by all threads."""
        self._calls = calls
        self._begins.wait()
        begin = time.perf_counter()
        self._copy(0)
        self._ends.wait()
        return time.perf_counter() - begin

    def stop(self) -> None:
        """Ends the threads."""
        self._begins.abort()
        self._ends.abort()

    def _copy(self, first: int) -> None:
        length = max(0, min(self._block_bytes, self._size - first))
        for _ in range(self._calls):
            ctypes.memmove(self._target + first, self._source + first, length)

    def _copy_in_thread(self, first: int) -> None:
        while True:
            try:
                self._begins.wait()
                self._copy(first)
                self._ends.wait()
            except threading.BrokenBarrierError:
                return


@contextmanager
def _transfers(driver: Driver, size: int) -> Iterator[dict[str, Timer]]:
    with driver.buffers(size) as (pinned, device):
        copies = {
            "upload": lambda: driver.upload(device, pinned, size),
            "download": lambda: driver.download(pinned, device, size),
        }
        yield {
            name: make_timer("copy()", {"copy": copy}, synchronise=driver.synchronise)
            for name, copy in copies.items()
        }
