"""GPU arrays on the fake driver, for programs that `fake_driver.run_program` starts."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np

driver = cupy.driver
driver.testdriver_calls.restype = ctypes.c_uint64
driver.testdriver_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]


def on_gpu(array: Any, device: int = 0) -> Any:
    """A copy of an array on a GPU, which is there when this returns."""
    array = np.ascontiguousarray(array)
    with cupy.cuda.Device(device):
        x = cupy.empty(array.shape, array.dtype)
        x.set(array)
        cupy.cuda.get_current_stream().synchronize()
    return x
