"""Moves bytes between the host and the fake GPU by every transfer path, and checks values."""

from __future__ import annotations

import gc
import tempfile

import cupy
import numpy as np
from support.cases import case, main
from support.errors import raised
from support.fake_gpu import driver, on_gpu
from support.gpu_transfers import KIB, MIB, Array, calls, numbers, strided

import tensorferry as ferry


@case
def downloads_of_every_size() -> None:
    """Downloads from nothing to 19 MiB, into recycled, pinned and fresh memory."""
    small = (0, 1, 4 * KIB, 511 * KIB, 512 * KIB, 700 * KIB)
    for size in (*small, MIB, 4 * MIB, 5 * MIB + 12, 19 * MIB):
        array = numbers(size // 4)
        x = on_gpu(array)
        kept: list[Array] = []
        for _ in range(3):
            # Dropped, and kept: by the driver, into recycled, pinned and fresh memory.
            np.testing.assert_array_equal(ferry.to(x, "numpy"), array)
            kept.append(ferry.to(x, "numpy"))
        assert all(np.array_equal(result, array) for result in kept)
        assert len({result.ctypes.data for result in kept}) == 3


@case
def strides_and_casts() -> None:
    """Views and casts in both directions; a part costs only its own bytes."""
    base = numbers(1500, 1100)
    x = on_gpu(base)
    views = (base.T, base[::3, 1::2], base[100:200], base[:, 5:900], base[::-1, ::-1].T)
    for view in views:
        there = strided(x, view, base)
        for dtype in (None, "float16", "float64", "int8"):
            expected = view if dtype is None else ferry.to(view, "numpy", dtype=dtype)
            for _ in range(2):
                found = ferry.to(there, "numpy", dtype=dtype)
                assert np.array_equal(found, expected), (view.shape, dtype)
            up = ferry.to(view, "cupy", dtype=dtype)
            assert np.array_equal(up.get(), expected), (view.shape, dtype)
    with ferry.trace() as trips:
        ferry.to(strided(x, base[100:200], base), "numpy")
    assert trips[0].bytes_moved == 100 * 1100 * 4


@case
def little_gpu_memory() -> None:
    """The GPU refuses the first size of scratch memory, and a smaller one is used."""
    base = numbers(6000, 2000)
    x = on_gpu(base)
    there = strided(x, base.T, base)
    before = calls("cuMemAllocAsync")
    # The first sizes that are tried are refused.
    driver.testdriver_fail(b"cuMemAllocAsync", 0, 2)
    assert np.array_equal(ferry.to(there, "numpy"), base.T)
    assert calls("cuMemAllocAsync") == before + 2


@case
def dropped_result() -> None:
    """A dropped result leaves pinned memory, which later transfers use and host copies do not."""
    x = on_gpu(numbers(3 * MIB))
    first = ferry.to(x, "numpy")
    assert ferry.memory_stats().used_bytes >= 12 * MIB
    staging = ferry.memory_stats().pinned_bytes
    del first
    second = ferry.to(x, "numpy")
    address = second.ctypes.data
    assert ferry.memory_stats().pinned_bytes == staging + 12 * MIB
    del second
    copies = calls("cuMemcpyDtoHAsync_v2")
    third = ferry.to(x, "numpy")
    # One copy, by the GPU itself.
    assert third.ctypes.data == address
    assert calls("cuMemcpyDtoHAsync_v2") == copies + 1
    # From pinned memory it goes back in one as well.
    uploads = calls("cuMemcpyHtoDAsync_v2")
    y = ferry.to(third, "cupy")
    assert calls("cuMemcpyHtoDAsync_v2") == uploads + 1
    assert np.array_equal(y.get(), third)
    # Host copies get other memory, so that the pinned stays for transfers.
    del third
    other = ferry.to(numbers(3 * MIB), "numpy", copy=True)
    assert other.ctypes.data != address
    del other
    gc.collect()
    assert ferry.memory_stats().pinned_bytes > 0
    assert ferry.empty_cache() > 0
    assert ferry.memory_stats().pinned_bytes == 0
    assert driver.testdriver_registered() == 0


@case
def bounded_pinned_memory() -> None:
    """Pinned memory stays below the limit of the pool, whether results are dropped or kept."""
    x = on_gpu(numbers(3 * MIB))
    for _ in range(4):
        ferry.to(x, "numpy")
        assert ferry.memory_stats().pinned_bytes <= 16 * MIB, ferry.memory_stats()
    small = on_gpu(numbers(MIB // 4))
    kept = [ferry.to(small, "numpy") for _ in range(40)]
    # Results that are kept are not pinned for ever.
    assert ferry.memory_stats().pinned_bytes <= 16 * MIB, ferry.memory_stats()
    del kept


@case
def result_that_is_still_read() -> None:
    """A dropped result that a stream still reads is recycled only after the read."""
    one, two = numbers(2 * MIB), numbers(2 * MIB)
    x, y = on_gpu(one), on_gpu(two)
    ferry.to(x, "numpy")
    for _ in range(3):
        result = ferry.to(x, "numpy")
        stream, copy = cupy.cuda.Stream(), cupy.empty(one.shape, one.dtype)
        with stream:
            copy.set(result)
        address = result.ctypes.data
        del result
        again = ferry.to(y, "numpy")
        assert again.ctypes.data == address
        assert np.array_equal(again, two)
        with stream:
            assert np.array_equal(copy.get(), one)
        del again


@case
def buffer_that_is_still_read() -> None:
    """Memory that a stream still reads does not become a staging buffer of another transfer."""
    for size in (MIB // 2, MIB, 2 * MIB, 4 * MIB):
        one, two = numbers(size), numbers(size)
        x = on_gpu(one)
        kept = ferry.to(x, "numpy")
        for _ in range(3):
            ferry.to(x, "numpy")
            result = ferry.to(x, "numpy")
            stream, copy = cupy.cuda.Stream(), cupy.empty(one.shape, one.dtype)
            with stream:
                copy.set(result)
            del result
            ferry.to(two[::-1], "cupy")
            out = np.empty_like(two)
            ferry.to(x, "numpy", out=out[::-1])
            with stream:
                assert np.array_equal(copy.get(), one), size
        del kept


@case
def queued_work() -> None:
    """Work that is queued on the current stream is waited for, in both directions."""
    for size in (MIB // 8, MIB, 5 * MIB):
        kept = []
        for repeat in range(12):
            stream, array = cupy.cuda.Stream(), numbers(size)
            with stream:
                x = cupy.empty(array.shape, array.dtype)
                x.set(array)
                found = ferry.to(x, "numpy")
                assert np.array_equal(found, array)
                if repeat % 2:
                    kept.append(found)
                y = ferry.to(array, "cupy")
                assert np.array_equal(y.get(), array)


@case
def out() -> None:
    """Transfers into memory of the caller's: dense, strided, cast, mapped, with a budget."""
    array = numbers(1200, 1100)
    x = on_gpu(array)
    out = np.empty_like(array)
    assert ferry.to(x, "numpy", out=out) is out
    assert np.array_equal(out, array)
    wide = np.full((1200, 2200), 7, np.float32)
    ferry.to(x, "numpy", out=wide[:, ::2])
    assert np.array_equal(wide[:, ::2], array)
    assert (wide[:, 1::2] == 7).all()
    half = np.empty((1200, 1100), np.float16)
    ferry.to(x, "numpy", out=half, dtype="float16")
    assert np.array_equal(half, array.astype(np.float16))
    with tempfile.NamedTemporaryFile() as file:
        mapped = np.memmap(file.name, np.float32, "w+", shape=array.shape)
        gc.collect()
        ferry.empty_cache()
        before = calls("cuMemcpyDtoHAsync_v2")
        ferry.to(x, "numpy", out=mapped, budget=2 * MIB)
        held = ferry.memory_stats()
        assert held.used_bytes + held.idle_bytes == 2 * MIB, held
        assert calls("cuMemcpyDtoHAsync_v2") - before >= array.nbytes / MIB
        mapped.flush()
        assert np.array_equal(np.fromfile(file.name, np.float32).reshape(array.shape), array)
    y = cupy.empty(array.shape, array.dtype)
    assert ferry.to(array, "cupy", out=y) is y
    assert np.array_equal(y.get(), array)
    doubles = cupy.empty(array.shape, np.dtype(np.float64))
    allocations = calls("cuMemAllocAsync")
    ferry.to(array, "cupy", out=doubles, dtype="float64", budget=2 * MIB)
    # Cast on the host: no scratch memory on the GPU.
    assert np.array_equal(doubles.get(), array.astype(np.float64))
    assert calls("cuMemAllocAsync") == allocations
    z = cupy.empty(array.shape, array.dtype)
    ferry.to(strided(x, array[::-1], array), "cupy", out=z)
    assert np.array_equal(z.get(), array[::-1])


@case
def refused_out() -> None:
    """Memory of the caller's that cannot be filled is refused with a hint."""
    array = numbers(1200, 1100)
    x, z = on_gpu(array), on_gpu(array)
    out = np.empty_like(array)
    back = strided(z, array[:, ::-1], array)
    turned = strided(x, array[::-1], array)
    for call, text in (
        (lambda: ferry.to(array, "cupy", out=back), "on a GPU and not contiguous"),
        (lambda: ferry.to(turned, "cupy", out=x), "share memory on a GPU"),
        (lambda: ferry.to(x, "numpy", out=out, device="cuda:0"), "out is on cpu"),
        (lambda: ferry.to(array, "numpy", out=out, stream=0), "stays on the host"),
    ):
        error = raised(ferry.InvalidArgumentError, call)
        assert text in str(error), error
        assert error.hint
    few = raised(MemoryError, lambda: ferry.to(x, "numpy", out=out, budget=1000))
    assert "budget is 1000 bytes" in str(few)


@case
def planned_paths() -> None:
    """A plan names the transfer path, and the time once it is known."""
    for size, paths in (
        (KIB, ("one driver call", "one driver call")),
        (3 * MIB, ("memory is fresh", "pinned for this and later", "of an earlier result")),
    ):
        x = on_gpu(numbers(size))
        for path in paths:
            plan = ferry.plan(x, "numpy")
            assert path in (plan.transfer_path or ""), (path, plan)
            assert path in str(plan), (path, plan)
            ferry.to(x, "numpy")
            assert ("time: about" in str(plan)) == (plan.expected_seconds is not None)
            assert ("not known before the first" in str(plan)) == (plan.expected_seconds is None)
    assert plan.expected_seconds
    pinned = ferry.to(x, "numpy")
    for source, path in (
        (numbers(KIB), "one driver call"),
        (numbers(MIB // 4), "through a pinned staging buffer"),
        (numbers(3 * MIB), "is not pinned"),
        (numbers(3 * MIB)[::-1], "packed or cast"),
        (pinned, "from pinned memory"),
    ):
        assert path in (ferry.plan(source, "cupy").transfer_path or "")
    assert ferry.plan(x, "cupy").transfer_path is None
    assert ferry.plan(numbers(9), "torch").transfer_path is None


@case
def pinned_after_a_download() -> None:
    """Prints the MiB of pinned memory after a download of 256 MiB."""
    x = on_gpu(numbers(64 * MIB))
    ferry.to(x, "numpy")
    print(ferry.memory_stats().pinned_bytes // MIB)


if __name__ == "__main__":
    main()
