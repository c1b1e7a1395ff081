"""Moves bytes on a fake GPU that fails on demand, and checks that everything stays usable."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from support.cases import case, main
from support.fake_gpu import driver, on_gpu
from support.gpu_transfers import MIB, Array, calls, numbers, strided

import tensorferry as ferry


def on_host(x: Any) -> Any:
    """The array itself, or a download of it."""
    return x if isinstance(x, np.ndarray) else x.get()


@case
def device_fails_midway(function: str) -> None:
    """A function of the driver fails at its first, second, ... call in three transfers."""
    base = numbers(2100, 2000)
    x, name = on_gpu(base), function.encode()
    there, raised = strided(x, base.T, base), 0
    transfers: list[tuple[Callable[[], Any], Array]] = [
        (lambda: ferry.to(x, "numpy"), base),
        (lambda: ferry.to(there, "numpy"), base.T),
        (lambda: ferry.to(base.T, "cupy"), base.T),
    ]
    for fetch, expected in transfers:
        for call in range(4):
            gc.collect()
            used = ferry.memory_stats().used_bytes
            driver.testdriver_fail(name, call, 719)
            found: Any = None
            try:
                found = fetch()
            except ferry.FrameworkError as error:
                assert isinstance(error, RuntimeError)
                raised += 1
                # Nothing uses memory that was given back, but where waiting itself fails.
                assert driver.testdriver_busy() == 0 or name == b"cuStreamSynchronize"
            else:
                # Not called so often.
                driver.testdriver_fail(name, 1 << 40, 719)
                assert np.array_equal(on_host(found), expected)
            found = None
            assert ferry.memory_stats().used_bytes == used
            assert np.array_equal(on_host(fetch()), expected)
    assert raised
    ferry.empty_cache()
    assert driver.testdriver_registered() == 0


@case
def nothing_can_be_pinned() -> None:
    """The system refuses to pin memory for good; transfers go through unpinned memory."""
    array = numbers(3 * MIB)
    x = on_gpu(array)
    driver.testdriver_fail_for_good(b"cuMemHostRegister_v2", 1)
    kept: list[Array] = []
    wide = np.zeros((2, 3 * MIB), np.float32)
    for _ in range(3):
        for _ in range(4):
            kept.append(ferry.to(x, "numpy"))
            y = ferry.to(array[::-1], "cupy")
            assert np.array_equal(y.get(), array[::-1])
            ferry.to(x, "numpy", out=wide.T[:, 1])
            assert np.array_equal(wide[1], array)
            assert not wide[0].any()
        assert all(np.array_equal(result, array) for result in kept)
        kept.clear()
    assert driver.testdriver_registered() == 0
    assert ferry.memory_stats().pinned_bytes == 0


@case
def no_wait_and_no_event_is_left() -> None:
    """Jobs that are cancelled and transfers that fail leave no wait and no event behind."""
    big = numbers(4 * MIB)
    other, out = on_gpu(big), np.empty_like(big)
    ferry.to(other, "numpy", out=out)
    for _ in range(20):
        busy = cupy.cuda.Stream()
        with busy:
            # Put off until somebody waits for this stream.
            late = cupy.empty((MIB,), big.dtype)
            late.set(big[:MIB])
            target = cupy.empty(big.shape, big.dtype)
            job = ferry.to_async(big[::-1], "cupy", out=target)
        job.cancel()
        with contextlib.suppress(ferry.CancelledError):
            job.result()
        before = driver.testdriver_busy()
        with cupy.cuda.Stream():
            ferry.to(other, "numpy", out=out)
        assert driver.testdriver_busy() >= before, "an unrelated download waited for the stream"
        busy.synchronize()
    made = calls("cuEventCreate")
    for _ in range(20):
        driver.testdriver_fail(b"cuMemcpyHtoDAsync_v2", 0, 719)
        with contextlib.suppress(ferry.FrameworkError):
            ferry.to(big[::-1], "cupy", out=target)
    assert calls("cuEventCreate") - made < 6
    np.testing.assert_array_equal(ferry.to(other, "numpy"), big)


@case
def out_of_torch() -> None:
    """A download into a tensor of PyTorch that fails half way has changed the tensor."""
    import torch

    x = on_gpu(numbers(8 * MIB))
    out = torch.zeros(8 * MIB)
    ferry.to(x, "torch", out=out)
    out.zero_()
    version = out._version
    driver.testdriver_fail(b"cuMemcpyDtoHAsync_v2", 4, 719)
    with contextlib.suppress(ferry.FrameworkError):
        ferry.to(x, "torch", out=out)
        raise AssertionError("the driver does not fail")
    written = int(out.count_nonzero())
    assert 0 < written < out.numel(), written
    assert out._version == version + 1


if __name__ == "__main__":
    main()
