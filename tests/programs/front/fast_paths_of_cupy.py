"""Downloads with CuPy on the fake driver and prints the states of CuPy's fast paths.

The argument says what CuPy's modules are like before the first call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cupy
import numpy as np
from support.fake_gpu import on_gpu

import tensorferry as ferry
from tensorferry._native import _fast_paths


def add_stream_module(pointer: Callable[[], int]) -> None:
    """Adds the private module of CuPy that gives the handle of the current stream."""
    parent: Any = ModuleType("cupy_backends")
    sys.modules["cupy_backends"] = sys.modules["cupy_backends.cuda"] = parent
    module: Any = ModuleType("cupy_backends.cuda.stream")
    sys.modules["cupy_backends.cuda.stream"] = module
    module.get_current_stream_ptr = pointer


def lie_about_contiguity() -> None:
    """Makes every array say that it is contiguous."""
    lie = property(lambda x: True, lambda x, given: None)
    cupy.ndarray._c_contiguous = lie  # type: ignore[assignment]


WORLDS: dict[str, Callable[[], None]] = {
    "true": lambda: add_stream_module(lambda: cupy.cuda.get_current_stream().ptr),
    "wrong stream": lambda: add_stream_module(lambda: 0),
    "wrong contiguity": lie_about_contiguity,
}

WORLDS[sys.argv[1]]()
x = on_gpu(np.arange(6, dtype=np.float32).reshape(2, 3))
with cupy.cuda.Stream():
    np.testing.assert_array_equal(ferry.to(x, "numpy"), x.get())
for row in _fast_paths():
    if row["framework"] == "cupy":
        print(row["name"], row["state"], row["reason"])
