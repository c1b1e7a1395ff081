"""Takes GPU memory through the C table, and wraps it, on the fake driver."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np
from support import c_table
from support.c_table import CPU, CUDA, NO_STREAM, F, Taken, take
from support.cases import case, main
from support.errors import raised
from support.fake_gpu import driver, on_gpu

import tensorferry as ferry


def values(taken: Taken, stream: Any) -> np.ndarray:
    """A copy of the dense memory, in the order of a stream."""
    host = np.empty(taken.shape, "f4")
    copy = driver.cuMemcpyDtoHAsync_v2
    copy.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
    assert copy(host.ctypes.data, taken.data, host.nbytes, stream.ptr) == 0
    stream.synchronize()
    return host


def check_columns(taken: Taken, stream: Any) -> None:
    """The values of ARRAY, column by column."""
    columns = values(taken, stream).reshape(-1).reshape(4, 3)
    np.testing.assert_array_equal(columns.T, ARRAY)


ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


@case
def shares() -> None:
    """The memory is the array's, and the extension's stream waits for the array's work."""
    source = on_gpu(ARRAY)
    for _ in range(20):
        stream = cupy.cuda.Stream()
        with cupy.cuda.Stream():
            x = source.queue_copy()
            taken = take(x, device=(CUDA, 0), stream=stream.ptr)
        assert (taken.tensor.device.kind, taken.tensor.device.index) == (CUDA, 0)
        assert (taken.data, taken.is_copied) == (x.data.ptr, False)
        np.testing.assert_array_equal(values(taken, stream), ARRAY)
        taken.release()


@case
def copies() -> None:
    """A copy for another order is on the GPU, and in the order of the extension's stream."""
    x = on_gpu(ARRAY)
    for _ in range(20):
        stream = cupy.cuda.Stream()
        taken = take(x, order=F, stream=stream.ptr)
        assert (taken.tensor.device.kind, taken.is_copied) == (CUDA, True)
        assert (taken.shape, taken.strides) == ((3, 4), (1, 3))
        check_columns(taken, stream)
        taken.release()
    taken = take(x, order=F, stream=NO_STREAM)
    check_columns(taken, cupy.cuda.Stream())
    error = raised(ferry.CopyRequiredError, lambda: take(x, order=F, copy_allowed=False))
    assert "needs a copy" in str(error), error


@case
def refusals() -> None:
    """No download, no other GPU, and no stream that cannot be one."""
    x = on_gpu(ARRAY)
    said = str(raised(ferry.UnsupportedError, lambda: take(x, device=(CPU, 0))))
    assert "accepts tensors on cpu, and the tensor is on cuda:0" in said, said
    assert 'device="cpu"' in said, said
    said = str(raised(ferry.UnsupportedError, lambda: take(x, device=(CUDA, 1))))
    assert "accepts tensors on cuda:1" in said, said
    said = str(raised(ferry.InvalidArgumentError, lambda: take(x, stream=7)))
    assert "the stream of the request is 7" in said, said


@case
def wraps() -> None:
    """What was taken from one array becomes another one over the same memory."""
    x = on_gpu(ARRAY)
    taken = take(x, stream=cupy.cuda.Stream().ptr)
    y = c_table.api.wrap(taken.address, "cupy")
    taken.give_up()
    assert type(y) is cupy.ndarray
    assert y.data.ptr == x.data.ptr
    np.testing.assert_array_equal(y.get(), ARRAY)
    taken = take(x)
    host = c_table.api.wrap(taken.address, "numpy")
    taken.give_up()
    np.testing.assert_array_equal(host, ARRAY)


if __name__ == "__main__":
    main()
