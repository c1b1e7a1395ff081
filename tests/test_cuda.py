"""GPU memory on a machine without a GPU, against a stand-in that works late and fails on demand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import subprocesses
from support.refusals import refused

import tensorferry as ferry

DRIVER = Path(__file__).parent.parent / "target" / "testdriver"

# What the children know: the stand-in, memory in it, and objects that describe such memory.
SETUP = """
import ctypes
import numpy as np
import tensorferry as ferry

cuda = ctypes.CDLL("libcuda.so.1")
cuda.testdriver_calls.restype = ctypes.c_uint64
cuda.testdriver_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
pointer = ctypes.c_void_p
cuda.cuMemcpyHtoDAsync_v2.argtypes = [ctypes.c_uint64, pointer, ctypes.c_size_t, pointer]
cuda.cuStreamSynchronize.argtypes = [ctypes.c_void_p]

def calls(name):
    return cuda.testdriver_calls(name.encode())

class OnGpu:
    '''An array on the stand-in's device, as Numba would describe it.'''
    def __init__(self, array, stream=None, wait=True):
        self.host = np.array(array, order="C")
        place = ctypes.c_uint64()
        size = ctypes.c_size_t(max(self.host.nbytes, 1))
        assert cuda.cuMemAlloc_v2(ctypes.byref(place), size) == 0
        cuda.cuMemcpyHtoDAsync_v2(place.value, self.host.ctypes.data, self.host.nbytes, stream or 0)
        if wait:
            cuda.cuStreamSynchronize(stream or 0)
        self.__cuda_array_interface__ = {
            "version": 3, "shape": self.host.shape, "typestr": self.host.dtype.str,
            "data": (place.value, False), "strides": None, "stream": stream,
        }

    def view(self, shape, strides, offset=0):
        other = OnGpu.__new__(OnGpu)
        address, _ = self.__cuda_array_interface__["data"]
        other.base = self
        other.__cuda_array_interface__ = {
            **self.__cuda_array_interface__, "shape": shape, "strides": strides,
            "data": (address + offset, False),
        }
        return other

def new_stream():
    handle = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(handle), 1) == 0
    return handle.value
"""


def run(code: str) -> str:
    return subprocesses.run(SETUP + subprocesses.textwrap.dedent(code), LD_LIBRARY_PATH=str(DRIVER))


def test_downloads():
    run("""
    for dtype in ("float32", "int8", "complex128", "bool", "uint64", "float16"):
        for shape in ((), (0,), (5,), (3, 4, 2)):
            array = (np.random.default_rng(1).random(shape) * 9).astype(dtype)
            got = ferry.to(OnGpu(array), "numpy")
            assert got.dtype == array.dtype and got.shape == array.shape
            np.testing.assert_array_equal(got, array)
    plan = ferry.plan(OnGpu(np.ones(3)), "numpy")
    assert plan.action == "copy" and plan.steps[0][0] == "download", plan
    """)


def test_strides_and_casts_are_packed_on_the_device():
    run("""
    array = np.arange(48, dtype=np.float32).reshape(6, 8) - 7.5
    x = OnGpu(array)
    for shape, strides, offset, expected in (
        ((8, 6), (4, 32), 0, array.T),
        ((3, 4), (64, 8), 4, array[::2, 1::2]),
        ((6, 8), (-32, 4), 160, array[::-1]),
        ((2, 8, 3), (96, 4, 32), 0, array.reshape(2, 3, 8).swapaxes(1, 2)),
    ):
        view = x.view(shape, strides, offset)
        before = calls("cuLaunchKernel")
        np.testing.assert_array_equal(ferry.to(view, "numpy"), expected)
        assert calls("cuLaunchKernel") == before + 1
        got = ferry.to(view, "numpy", dtype="int16")
        np.testing.assert_array_equal(got, expected.astype("int16"))
    swapped = OnGpu(array.astype(">f4"))
    np.testing.assert_array_equal(ferry.to(swapped, "numpy", dtype="float64"), array)
    np.testing.assert_array_equal(ferry.to(swapped, "numpy", dtype="float32"), array)
    """)


def test_elements_that_are_not_aligned():
    run("""
    values = np.arange(40, dtype=np.float64)
    bytes_ = OnGpu(np.concatenate([np.zeros(3, np.uint8), values.view(np.uint8)]))
    cases = (("<f8", 8), ("<f8", 16), ("<c16", 32), ("<c16", 16), ("<f4", 8), ("<f4", 5))
    for dtype, step in cases:
        count = (320 - 16) // step
        view = bytes_.view((count,), (step,), 3)
        view.__cuda_array_interface__["typestr"] = dtype
        expected = np.ndarray((count,), dtype, values.data, 0, (step,))
        np.testing.assert_array_equal(ferry.to(view, "numpy"), expected)
        with np.errstate(all="ignore"):
            cast = expected.astype("complex64")
        np.testing.assert_array_equal(ferry.to(view, "numpy", dtype="complex64"), cast)
    """)


def test_work_that_is_queued_is_waited_for():
    run("""
    array = np.arange(1000, dtype=np.float64)
    stream = new_stream()
    for _ in range(20):
        x = OnGpu(array, stream=stream, wait=False)
        np.testing.assert_array_equal(ferry.to(x, "numpy"), array)
        x = OnGpu(array, stream=stream, wait=False)
        half = ferry.to(x.view((500,), (16,)), "torch", device="cpu")
        np.testing.assert_array_equal(half.numpy(), array[::2])
    """)


def test_running_out_of_memory_and_other_failures():
    run("""
    array = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = OnGpu(array)
    turned = x.view((8, 8), (4, 32))
    used = cuda.testdriver_used()
    cuda.testdriver_fail(b"cuMemAllocAsync", 0, 2)
    try:
        ferry.to(turned, "numpy")
    except MemoryError as error:
        assert isinstance(error, ferry.OutOfMemoryError)
        assert "no memory for 256 bytes on cuda:0" in str(error) and "bytes are free" in str(error)
    else:
        raise AssertionError("no error")
    for name in (b"cuLaunchKernel", b"cuMemcpyDtoHAsync_v2", b"cuStreamSynchronize"):
        cuda.testdriver_fail(name, 0, 719)
        try:
            ferry.to(turned, "numpy")
        except RuntimeError as error:
            assert isinstance(error, ferry.FrameworkError), error
            assert "CUDA_ERROR_LAUNCH_FAILED" in str(error) and error.hint
        else:
            raise AssertionError(name)
        np.testing.assert_array_equal(ferry.to(turned, "numpy"), array.T)
    assert cuda.testdriver_used() <= used + 256
    """)


def test_bad_interfaces_are_refused():
    run("""
    good = OnGpu(np.ones(4)).__cuda_array_interface__
    for change, what in (
        ({"typestr": "<Q9"}, "<Q9"), ({"shape": (-1,)}, "negative"),
        ({"shape": "x"}, "shape"),
        ({"data": (12, False)}, "GPU memory"),
        ({"data": 5}, "data"),
        ({"strides": (1, 2)}, "strides"),
        ({"stream": 0}, "stream"), ({"stream": 7}, "stream"), ({"stream": 4097}, "stream"),
        ({"mask": object()}, "mask"), ({"shape": None}, "lacks shape"),
    ):
        class Bad:
            __cuda_array_interface__ = {**good, **change}
        try:
            ferry.to(Bad(), "numpy")
        except ferry.FerryError as error:
            assert what in str(error), (change, error)
        else:
            raise AssertionError(change)
    """)


def test_asking_for_what_cannot_be():
    run("""
    def refused(call, what):
        try:
            call()
        except ferry.FerryError as error:
            assert what in str(error) and error.hint, error
        else:
            raise AssertionError(what)
    x = OnGpu(np.ones(3))
    refused(lambda: ferry.to(np.ones(3), "numpy", device="cuda"), "NumPy holds host memory only")
    refused(lambda: ferry.to(x, "numpy", copy=False), "the source is on cuda:0")
    refused(lambda: ferry.to(np.ones(3), "torch", device="cuda:9"), "cuda:9 does not exist")
    refused(lambda: ferry.to(x, "numpy", budget=8), "budget")
    refused(lambda: ferry.to(x, "numpy", out=np.empty(4)), "out has shape [4]")
    """)


def test_a_fork_is_told():
    run("""
    import os
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
    """)


def test_without_a_driver():
    """This machine may have none: then the error says so, and nothing else breaks."""
    code = """
    import numpy as np, tensorferry as ferry
    class OnGpu:
        __cuda_array_interface__ = {
            "version": 3, "shape": (3,), "typestr": "<f4", "data": (4096, False), "strides": None,
        }
    try:
        ferry.to(OnGpu(), "numpy")
    except ferry.FerryError as error:
        assert error.hint
        # Where there is a driver, it knows the address of no GPU.
        print("no CUDA driver" in str(error) or "no GPU" in str(error))
    assert ferry.to(np.ones(3), "numpy", copy=True).sum() == 3
    """
    assert subprocesses.run(code, LD_LIBRARY_PATH="") == "True\n"


@pytest.mark.parametrize("device", ["cuda:-1", "gpu:x", "tpu", 7])
def test_devices_that_mean_nothing(device):
    refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(np.ones(2), "torch", device=device)
    )


def test_streams_that_mean_nothing():
    for stream in ("main", -3, object()):
        refused(
            ferry.InvalidArgumentError,
            ValueError,
            lambda stream=stream: ferry.to(np.ones(2), "torch", stream=stream),
        )


@pytest.mark.parametrize("stream", [3, 8, 4095, 4097, 2**48 + 4])
def test_numbers_that_are_the_handle_of_no_stream(stream):
    """Handles are addresses: aligned, and not in the first page. The driver follows any number."""

    class Foreign:
        def __cuda_stream__(self):
            return 0, stream

    for given in (stream, Foreign()):
        error = refused(
            ferry.InvalidArgumentError,
            ValueError,
            lambda given=given: ferry.to(np.ones(2), "torch", stream=given),
        )
        assert f"stream is {stream}," in str(error)
