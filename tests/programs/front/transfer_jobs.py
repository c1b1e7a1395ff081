"""Runs jobs, progress, cancelling and interrupts of transfers on the fake GPU."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import functools
import gc
import signal
import sys
from typing import Any

import cupy
import numpy as np
from support.cases import case, main
from support.errors import raised
from support.fake_gpu import driver, on_gpu
from support.gpu_transfers import KIB, MIB, calls, numbers
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry


def on_host(x: Any) -> Any:
    """The array itself, or a download of it."""
    return x if isinstance(x, np.ndarray) else x.get()


@case
def jobs() -> None:
    """Jobs in both directions, of trees, into memory of the caller's, traced and awaited."""
    array = numbers(2100, 2000)
    x = on_gpu(array)
    for target, source in (("numpy", x), ("cupy", array.T.copy().T)):
        job = ferry.to_async(source, target)
        assert job.bytes_total == array.nbytes
        assert 0 <= job.bytes_moved <= job.bytes_total
        assert np.array_equal(on_host(job.result(timeout=HANG_SECONDS)), array)
        assert job.done()
        assert job.bytes_moved == job.bytes_total
        assert not job.cancel()
        assert repr(job).startswith("<Job done, ")
    tree = {"a": x, "b": [x, array, 5, None]}
    found: Any = ferry.to_async(tree, "numpy").result()
    assert found["a"] is found["b"][0]
    assert found["b"][1] is array
    assert found["b"][2:] == [5, None]
    out = np.empty_like(array)
    assert ferry.to_async(x, "numpy", out=out).result() is out
    assert np.array_equal(out, array)
    large = np.ones((4, 8 * MIB), np.float32)
    wide = np.empty((4, 8 * MIB), np.float64)
    cast = ferry.to_async(large, "numpy", out=wide, dtype="float64")
    assert (cast.result() == 1).all()
    with ferry.trace() as trips:
        ferry.to_async(x, "numpy").result()
    assert len(trips) == 1
    assert trips[0].bytes_moved == array.nbytes

    async def wait(job: ferry.Job[Any]) -> Any:
        return await job

    async def both() -> None:
        one, two = await asyncio.gather(*(wait(ferry.to_async(x, "numpy")) for _ in range(2)))
        assert np.array_equal(one, array)
        assert np.array_equal(two, array)

    asyncio.run(both())
    driver.testdriver_fail(b"cuMemcpyDtoHAsync_v2", 0, 719)
    raised(ferry.FrameworkError, lambda: asyncio.run(wait(ferry.to_async(x, "numpy"))))


@case
def stream_of_the_caller() -> None:
    """A job waits for what is queued on the stream that is current at the call."""
    array = numbers(2 * MIB)
    for _ in range(5):
        stream = cupy.cuda.Stream()
        with stream:
            x = cupy.empty(array.shape, array.dtype)
            x.set(array)
            down, up = ferry.to_async(x, "numpy"), ferry.to_async(array, "cupy")
        assert np.array_equal(down.result(), array)
        y = up.result()
        with stream:
            assert np.array_equal(y.get(), array)


@case
def cancelled_jobs() -> None:
    """Jobs are cancelled while they run, with callbacks of which one asks and one breaks off."""
    # The exception of a callback that breaks off is not of interest.
    sys.unraisablehook = lambda _: None
    array = numbers(4 * MIB)
    x = on_gpu(array)
    used = ferry.memory_stats().used_bytes
    cancelled = turns = 0

    def outcome(job: Any) -> BaseException | None:
        try:
            found: BaseException | None = job.exception()
        except ferry.CancelledError as error:
            return error
        return found

    def note(seen: list[BaseException | None], job: Any) -> None:
        seen.append(outcome(job))

    def break_off(job: Any) -> None:
        if job.cancelled():
            raise SystemExit("from a callback")

    # Some are done before they are cancelled.
    while turns < 20 or not cancelled:
        turns += 1
        # Into fresh memory, then into what is pinned.
        job = ferry.to_async(x, "numpy")
        seen: list[BaseException | None] = []
        # Callbacks run before waiters are notified. One callback reads the outcome, one raises.
        job.add_done_callback(functools.partial(note, seen))
        job.add_done_callback(break_off)
        if job.cancel():
            error = raised(ferry.CancelledError, job.result)
            assert isinstance(error, concurrent.futures.CancelledError)
            assert job.cancelled()
            assert job.done()
            assert not job.running()
            assert job.cancel()
            assert concurrent.futures.wait([job]).done == {job}
            assert len(seen) == 1, seen
            assert isinstance(seen[0], ferry.CancelledError), seen
            cancelled += 1
            del error
        else:
            job.result()
        del job
    gc.collect()
    assert ferry.memory_stats().used_bytes == used
    assert np.array_equal(ferry.to(x, "numpy"), array)
    driver.testdriver_hold(1)
    job = ferry.to_async(x, "numpy")
    late = raised(TimeoutError, job.result, timeout=0)
    driver.testdriver_hold(0)
    assert isinstance(late, ferry.DeadlineError)
    assert late.hint
    assert np.array_equal(job.result(), array)
    assert np.array_equal(ferry.to_async(x, "numpy").result(timeout=float("inf")), array)


@case
def progress_and_interrupts() -> None:
    """Progress is reported in order, and SIGINT ends a transfer in the middle."""
    array = numbers(4 * MIB)
    x = on_gpu(array)
    seen: list[tuple[int, int]] = []
    found = ferry.to(x, "numpy", progress=lambda moved, total: seen.append((moved, total)))
    assert np.array_equal(found, array)
    assert seen[-1] == (array.nbytes, array.nbytes)
    assert seen == sorted(seen)
    assert all(total == array.nbytes for _, total in seen)
    ferry.to(x, "numpy", progress=True)  # no terminal, no bar
    del found
    used = ferry.memory_stats().used_bytes

    # One call, and no Python in it that would hear the signal: the function is a builtin.
    big = on_gpu(numbers(100 * MIB))
    # It sends the signal itself when bytes have moved, and disregards the other arguments.
    interrupt = functools.partial(ctypes.CDLL(None)["raise"], signal.SIGINT)
    made = all_of_it = 400 * MIB // (128 * KIB)
    while made >= all_of_it:
        # One whose bytes have all moved before it is first looked at proves nothing.
        before = calls("cuMemcpyDtoHAsync_v2")
        raised(KeyboardInterrupt, ferry.to, big, "numpy", progress=interrupt)
        made = calls("cuMemcpyDtoHAsync_v2") - before
    del big
    gc.collect()
    assert ferry.memory_stats().used_bytes == used
    assert np.array_equal(ferry.to(x, "numpy"), array)


if __name__ == "__main__":
    main()
