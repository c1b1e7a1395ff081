"""Reads GPU memory that an object describes by `__cuda_array_interface__`, on the fake driver.

CuPy is not used here: the driver is called directly, as another library would.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
from support.cases import case, main
from support.errors import raised

import tensorferry as ferry

cuda = ctypes.CDLL("libcuda.so.1")
cuda.testdriver_calls.restype = ctypes.c_uint64
cuda.testdriver_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
cuda.cuMemcpyHtoDAsync_v2.argtypes = [
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
]
cuda.cuStreamSynchronize.argtypes = [ctypes.c_void_p]


def calls(name: str) -> int:
    """How often a function of the driver was called."""
    return int(cuda.testdriver_calls(name.encode()))


class OnGpu:
    """An array on the GPU, as Numba would describe it."""

    def __init__(self, array: Any, stream: int | None = None, wait: bool = True) -> None:
        self.host = np.array(array, order="C")
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(max(self.host.nbytes, 1))
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), size) == 0
        cuda.cuMemcpyHtoDAsync_v2(
            address.value, self.host.ctypes.data, self.host.nbytes, stream or 0
        )
        if wait:
            cuda.cuStreamSynchronize(stream or 0)
        self.__cuda_array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": self.host.shape,
            "typestr": self.host.dtype.str,
            "data": (address.value, False),
            "strides": None,
            "stream": stream,
        }

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Described:
        """Another array in the same memory."""
        address, _ = self.__cuda_array_interface__["data"]
        return Described(
            {
                **self.__cuda_array_interface__,
                "shape": shape,
                "strides": strides,
                "data": (address + offset, False),
            },
            self,
        )


class Described:
    """An object with any description, which keeps the memory alive."""

    def __init__(self, interface: dict[str, Any], base: object = None) -> None:
        self.base = base
        self.__cuda_array_interface__ = interface


def new_stream() -> int:
    """The handle of a new stream."""
    handle = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(handle), 1) == 0
    assert handle.value is not None
    return handle.value


@case
def downloads() -> None:
    """Downloads of several dtypes and shapes."""
    for dtype in ("float32", "int8", "complex128", "bool", "uint64", "float16"):
        for shape in ((), (0,), (5,), (3, 4, 2)):
            array = (np.asarray(np.random.default_rng(1).random(shape)) * 9).astype(dtype)
            got = ferry.to(OnGpu(array), "numpy")
            assert got.dtype == array.dtype
            assert got.shape == array.shape
            np.testing.assert_array_equal(got, array)
    plan = ferry.plan(OnGpu(np.ones(3)), "numpy")
    assert plan.action == "copy", plan
    assert plan.steps[0][0] == "download", plan


@case
def strides_and_casts() -> None:
    """Views are packed by one kernel; byte orders and casts give the right values."""
    array = np.arange(48, dtype=np.float32).reshape(6, 8) - 7.5
    x = OnGpu(array)
    views: list[tuple[tuple[int, ...], tuple[int, ...], int, Any]] = [
        ((8, 6), (4, 32), 0, array.T),
        ((3, 4), (64, 8), 4, array[::2, 1::2]),
        ((6, 8), (-32, 4), 160, array[::-1]),
        ((2, 8, 3), (96, 4, 32), 0, array.reshape(2, 3, 8).swapaxes(1, 2)),
    ]
    for shape, strides, offset, expected in views:
        view = x.view(shape, strides, offset)
        before = calls("cuLaunchKernel")
        np.testing.assert_array_equal(ferry.to(view, "numpy"), expected)
        assert calls("cuLaunchKernel") == before + 1
        got = ferry.to(view, "numpy", dtype="int16")
        np.testing.assert_array_equal(got, expected.astype("int16"))
    swapped = OnGpu(array.astype(">f4"))
    np.testing.assert_array_equal(ferry.to(swapped, "numpy", dtype="float64"), array)
    np.testing.assert_array_equal(ferry.to(swapped, "numpy", dtype="float32"), array)


@case
def unaligned_elements() -> None:
    """Elements at odd addresses and odd strides."""
    values = np.arange(40, dtype=np.float64)
    whole = OnGpu(np.concatenate([np.zeros(3, np.uint8), values.view(np.uint8)]))
    cases = (("<f8", 8), ("<f8", 16), ("<c16", 32), ("<c16", 16), ("<f4", 8), ("<f4", 5))
    for dtype, step in cases:
        count = (320 - 16) // step
        view = whole.view((count,), (step,), 3)
        view.__cuda_array_interface__["typestr"] = dtype
        expected = np.ndarray((count,), dtype, values.data, 0, (step,))
        np.testing.assert_array_equal(ferry.to(view, "numpy"), expected)
        with np.errstate(all="ignore"):
            cast = expected.astype("complex64")
        np.testing.assert_array_equal(ferry.to(view, "numpy", dtype="complex64"), cast)


@case
def queued_work() -> None:
    """A copy that is queued on the described stream is waited for."""
    array = np.arange(1000, dtype=np.float64)
    stream = new_stream()
    for _ in range(20):
        x = OnGpu(array, stream=stream, wait=False)
        np.testing.assert_array_equal(ferry.to(x, "numpy"), array)
        x = OnGpu(array, stream=stream, wait=False)
        half = ferry.to(x.view((500,), (16,)), "torch", device="cpu")
        np.testing.assert_array_equal(half.numpy(), array[::2])


@case
def failures() -> None:
    """No memory, and functions that fail: each is our error, and the next call works."""
    array = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = OnGpu(array)
    turned = x.view((8, 8), (4, 32))
    used = cuda.testdriver_used()
    cuda.testdriver_fail(b"cuMemAllocAsync", 0, 2)
    few = raised(MemoryError, ferry.to, turned, "numpy")
    assert isinstance(few, ferry.OutOfMemoryError)
    assert "no memory for 256 bytes on cuda:0" in str(few)
    assert "bytes are free" in str(few)
    for name in (b"cuLaunchKernel", b"cuMemcpyDtoHAsync_v2", b"cuStreamSynchronize"):
        cuda.testdriver_fail(name, 0, 719)
        error = raised(RuntimeError, ferry.to, turned, "numpy")
        assert isinstance(error, ferry.FrameworkError), error
        assert "CUDA_ERROR_LAUNCH_FAILED" in str(error)
        assert error.hint
        np.testing.assert_array_equal(ferry.to(turned, "numpy"), array.T)
    assert cuda.testdriver_used() <= used + 256


@case
def invalid_interfaces() -> None:
    """Descriptions that are wrong in one field are refused, and the error names the field."""
    good = OnGpu(np.ones(4))
    changes: list[tuple[dict[str, Any], str]] = [
        ({"typestr": "<Q9"}, "<Q9"),
        ({"shape": (-1,)}, "negative"),
        ({"shape": "x"}, "shape"),
        ({"data": (12, False)}, "GPU memory"),
        ({"data": 5}, "data"),
        ({"strides": (1, 2)}, "strides"),
        ({"stream": 0}, "stream"),
        ({"stream": 7}, "stream"),
        ({"stream": 4097}, "stream"),
        ({"mask": object()}, "mask"),
        ({"shape": None}, "lacks shape"),
    ]
    for change, says in changes:
        bad = Described({**good.__cuda_array_interface__, **change}, good)
        error = raised(ferry.FerryError, ferry.to, bad, "numpy")
        assert says in str(error), (change, error)


@case
def impossible_requests() -> None:
    """Requests that cannot be met are refused with a hint."""
    x = OnGpu(np.ones(3))
    requests: list[tuple[Any, str, dict[str, Any], str]] = [
        (np.ones(3), "numpy", {"device": "cuda"}, "NumPy holds host memory only"),
        (x, "numpy", {"copy": False}, "the source is on cuda:0"),
        (np.ones(3), "torch", {"device": "cuda:9"}, "cuda:9 does not exist"),
        (x, "numpy", {"budget": 8}, "budget"),
        (x, "numpy", {"out": np.empty(4)}, "out has shape [4]"),
    ]
    for source, framework, options, says in requests:
        error = raised(ferry.FerryError, ferry.to, source, framework, **options)
        assert says in str(error), error
        assert error.hint


@case
def fork() -> None:
    """The child of a fork is told that it cannot use the GPU."""
    x = OnGpu(np.ones(3))
    ferry.to(x, "numpy")
    child = os.fork()
    if child == 0:
        try:
            ferry.to(x, "numpy")
        except ferry.UnsupportedError as error:
            os._exit(0 if "forked child" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    main()
