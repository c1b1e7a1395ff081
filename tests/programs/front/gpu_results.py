"""Makes results in GPU memory with CuPy on the fake driver, and checks order and lifetimes."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import cupy
import numpy as np
from support.cases import case, main
from support.errors import raised
from support.fake_gpu import driver, on_gpu
from support.gpu_transfers import Foreign

import tensorferry as ferry

ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6) - 3.5
Error = TypeVar("Error", bound=Exception)
Result = TypeVar("Result")


@case
def uploads_and_copies() -> None:
    """Uploads of views and casts, and copies of what is there."""
    for view in (ARRAY, ARRAY.T, ARRAY[::2, ::-1], ARRAY[:0], np.asarray(ARRAY[1, 1])):
        for dtype in (None, "float64", "int16", "complex64"):
            y = ferry.to(view, "cupy", dtype=dtype)
            assert type(y) is cupy.ndarray
            assert y.data.device_id == 0
            np.testing.assert_array_equal(y.get(), view if dtype is None else view.astype(dtype))
            z = ferry.to(y, "cupy", copy=True)
            assert z.data.ptr != y.data.ptr or not view.size
            np.testing.assert_array_equal(z.get(), y.get())
    plan = ferry.plan(ARRAY, "cupy")
    assert plan.action == "copy", plan
    assert plan.steps[0][0] == "upload", plan
    x = on_gpu(ARRAY)
    assert ferry.to(x, "cupy") is x


@case
def share_waits_for_the_stream_of_the_source() -> None:
    """What is queued on the source's stream is seen on the stream that reads the share."""
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    more = ARRAY + 1
    for _ in range(10):
        x = cupy.empty(ARRAY.shape, ARRAY.dtype)
        with mine:
            x.set(ARRAY)
        with theirs:
            y = ferry.to(Foreign(x, mine), "cupy")
            assert y.data.ptr == x.data.ptr
            np.testing.assert_array_equal(y.get(), ARRAY)
        del y
        # The same for a stream that is named, also where the result is the source itself.
        with mine:
            x.set(more)
            assert ferry.to(x, "cupy", stream=theirs.ptr) is x
        with theirs:
            np.testing.assert_array_equal(x.get(), more)


@case
def release_after_queued_work() -> None:
    """Memory is handed out again only after the work that is queued on it."""
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    nines = np.full_like(ARRAY, 9)
    x = on_gpu(ARRAY)
    address = x.data.ptr
    with theirs:
        y = ferry.to(Foreign(x, mine), "cupy")
        kept = y.queue_copy()
    del x, y
    gc.collect()
    with mine:
        again = cupy.empty(ARRAY.shape, ARRAY.dtype)
        assert again.data.ptr == address, "the memory was not handed out again"
        again.set(nines)
        np.testing.assert_array_equal(again.get(), nines)
    with theirs:
        np.testing.assert_array_equal(kept.get(), ARRAY)


@case
def copy_for_a_stream() -> None:
    """A copy for a named stream is allocated on that stream, on every GPU."""
    stream = cupy.cuda.Stream()
    x = on_gpu(ARRAY)
    y = ferry.to(x, "cupy", copy=True, stream=stream.ptr)
    assert cupy.allocated_on[-1] == stream.ptr
    assert cupy.cuda.get_current_stream().ptr == 0
    with stream:
        np.testing.assert_array_equal(y.get(), ARRAY)
    y = ferry.to(ARRAY, "cupy", stream=stream.ptr)
    assert cupy.allocated_on[-1] == stream.ptr
    with stream:
        np.testing.assert_array_equal(y.get(), ARRAY)
    # On a GPU that is not current too: CuPy has a current stream for each.
    y = ferry.to(ARRAY, "cupy", device="cuda:1", stream=stream.ptr)
    assert y.data.device_id == 1
    assert cupy.allocated_on[-1] == stream.ptr
    with stream:
        np.testing.assert_array_equal(y.get(), ARRAY)


@case
def without_a_gpu() -> None:
    """CUDA cannot be initialised: the error says so, and names other frameworks."""
    driver.testdriver_fail(b"cuInit", 0, 100)
    for verb in (ferry.plan, ferry.to):
        error = raised(ferry.UnsupportedError, verb, ARRAY, "cupy")
        assert "CuPy holds GPU memory only, and CUDA cannot be initialised" in str(error), error
        assert "numpy or torch" in (error.hint or "")


@case
def two_gpus() -> None:
    """Copies between two GPUs, and a GPU that does not exist."""
    x = on_gpu(ARRAY, device=1)
    before = driver.testdriver_calls(b"cuMemcpyPeerAsync")
    y = ferry.to(x, "cupy", device="cuda:0", dtype="float64")
    assert (x.data.device_id, y.data.device_id) == (1, 0)
    assert driver.testdriver_calls(b"cuMemcpyPeerAsync") == before + 1
    np.testing.assert_array_equal(y.get(), ARRAY)
    assert ferry.plan(x, "cupy", device="cuda:0").steps[0][0] == "peer copy"
    assert ferry.to(x, "cupy") is x
    np.testing.assert_array_equal(ferry.to(x, "numpy"), ARRAY)
    up = ferry.to(ARRAY, "cupy", device="cuda:1")
    assert up.data.device_id == 1
    for verb in (ferry.plan, ferry.to):
        error = raised(ferry.UnsupportedError, verb, ARRAY, "cupy", device="cuda:2")
        assert "cuda:2 does not exist" in str(error), error
        assert "CUDA_VISIBLE_DEVICES" in (error.hint or "")


def fails(name: bytes, status: int, kind: type[Error], call: Callable[[], object]) -> Error:
    """The error of a call during which the driver fails; it is one of ours, with a hint."""
    driver.testdriver_fail(name, 0, status)
    error = raised(kind, call)
    assert isinstance(error, ferry.FerryError)
    assert error.hint, error
    return error


@case
def failures() -> None:
    """Functions of the driver fail one after the other, and everything stays usable."""
    x = on_gpu(ARRAY)
    stream = cupy.cuda.Stream()
    big = np.ones(1 << 16)
    error = fails(b"cuMemAlloc_v2", 2, MemoryError, lambda: ferry.to(big, "cupy"))
    assert "no memory for 524288 bytes on cuda:0" in str(error)
    assert "free" in str(error)
    assert type(error.__cause__) is cupy.OutOfMemoryError
    del error
    foreign = [Foreign(x, stream)]
    turned = [cupy.ndarray((6, 4), np.dtype(np.float32), x.data, (4, 24))]

    def share() -> Any:
        return ferry.to(foreign[0], "cupy")

    def copy() -> Any:
        return ferry.to(turned[0], "cupy", copy=True)

    fails(b"cuEventRecord", 719, ferry.FrameworkError, share)
    fails(b"cuStreamWaitEvent", 719, ferry.FrameworkError, share)
    fails(b"cuMemcpyHtoDAsync_v2", 719, ferry.FrameworkError, lambda: ferry.to(ARRAY, "cupy"))
    fails(b"cuLaunchKernel", 719, ferry.FrameworkError, copy)
    np.testing.assert_array_equal(copy().get(), ARRAY.T)
    np.testing.assert_array_equal(share().get(), ARRAY)
    np.testing.assert_array_equal(ferry.to(ARRAY, "cupy").get(), ARRAY)
    # A release that cannot be ordered keeps the memory, because somebody may still read it.
    y, ghost = share(), weakref.ref(x)
    driver.testdriver_fail(b"cuEventRecord", 0, 719)
    foreign.clear()
    turned.clear()
    del y, x
    gc.collect()
    assert ghost() is not None


def captured(stream: Any, work: Callable[[], Result]) -> Result:
    """Runs work while a stream is captured, which must end well."""
    driver.testdriver_capture(stream.ptr)
    try:
        with stream:
            return work()
    finally:
        assert driver.testdriver_end_captures(), "broken off"


@case
def captures() -> None:
    """Shares while a stream is captured: made where they can be, refused where they cannot."""
    mine, theirs = cupy.cuda.Stream(), cupy.cuda.Stream()
    x = on_gpu(ARRAY)

    def share() -> Any:
        return ferry.to(Foreign(x, mine), "cupy")

    # On one stream, and where nothing is queued on the other.
    for stream in (mine, theirs):
        y = captured(stream, share)
        assert y.data.ptr == x.data.ptr
        del y
    # Where something is, the captured one cannot wait; it is said before the driver hears of it.
    with mine:
        x.set(ARRAY)
    error = raised(ferry.InvalidArgumentError, lambda: captured(theirs, share))
    assert "captured" in str(error)
    assert error.hint
    mine.synchronize()
    # A result that dies meanwhile keeps its memory, instead of giving it back out of order.
    with theirs:
        results = [share()]
    captured(theirs, results.clear)
    np.testing.assert_array_equal(x.get(), ARRAY)


@case
def addresses_tell_their_device() -> None:
    """A foreign array is found on the GPU that its address is on."""
    for device in (0, 1):
        x = on_gpu(ARRAY, device)
        y = ferry.to(Foreign(x, cupy.cuda.Stream(0)), "cupy")
        assert y.data.device_id == device
        assert y.data.ptr == x.data.ptr
        np.testing.assert_array_equal(ferry.to(y, "numpy"), ARRAY)


@case
def lost_device() -> None:
    """The GPU is lost for good: each call says so, and host memory and the exit still work."""
    x = on_gpu(np.zeros(3 << 20, np.float32))
    shared, result = ferry.to(Foreign(x, cupy.cuda.Stream()), "cupy"), ferry.to(x, "numpy")
    job = ferry.to_async(x, "numpy")
    driver.testdriver_lose(719)
    for work in (
        lambda: ferry.to(x, "numpy"),
        lambda: ferry.to(Foreign(x, cupy.cuda.Stream(0)), "cupy"),
        lambda: ferry.to_async(x, "numpy").result(),
    ):
        for _ in range(2):
            error = raised(ferry.FrameworkError, work)
            assert "CUDA_ERROR_LAUNCH_FAILED" in str(error), error
    with contextlib.suppress(ferry.FrameworkError):
        job.result()
    # What is held goes without a word, and so does the process.
    del shared, result, job
    gc.collect()
    ferry.empty_cache()
    np.testing.assert_array_equal(ferry.to(ARRAY.T, "numpy", copy=True), ARRAY.T)


if __name__ == "__main__":
    main()
