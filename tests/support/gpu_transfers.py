"""Sources and counts for test programs that move bytes on the fake CUDA driver.

Only programs that `fake_driver.run_program` starts can import this module.
"""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np
from support.fake_gpu import driver

driver.testdriver_fail_for_good.argtypes = [ctypes.c_char_p, ctypes.c_int]
driver.testdriver_registered.restype = ctypes.c_size_t
driver.testdriver_busy.restype = ctypes.c_size_t
driver.testdriver_capture.argtypes = [ctypes.c_size_t]
driver.testdriver_end_captures.restype = ctypes.c_bool

KIB, MIB = 1 << 10, 1 << 20
Array = np.ndarray[Any, Any]
_random = np.random.default_rng(7)


def calls(name: str) -> int:
    """How often a function of the driver was called."""
    return int(driver.testdriver_calls(name.encode()))


def numbers(*shape: int) -> Array:
    """Random float32 values."""
    return _random.standard_normal(shape, dtype=np.float32)


def strided(x: Any, view: Array, base: Array) -> Any:
    """A view of a host array, as the same view of its copy on the GPU."""
    pointer = cupy.cuda.MemoryPointer(x.data.mem, view.ctypes.data - base.ctypes.data)
    return cupy.ndarray(view.shape, view.dtype, pointer, view.strides)


class Foreign:
    """A description of a CuPy array by another library, with a stream of its own."""

    def __init__(self, x: Any, stream: Any) -> None:
        self.x = x
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": x.shape,
            "typestr": x.dtype.str,
            "strides": None,
            "data": (x.data.ptr, False),
            "stream": stream.ptr or 1,
        }
