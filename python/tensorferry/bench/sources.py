"""The tensors that are converted, always placed alike, so that two runs convert the same thing.

NumPy puts an array at any multiple of 16 bytes, by the luck of the allocator; JAX, TensorFlow and
MLX share only what begins at a multiple of their alignment. Here a NumPy array begins at a multiple
of 64, as tensors of the other frameworks do, and the layout `unaligned` is 16 bytes past one.
"""

import math
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry import samples

LAYOUTS = (*samples.LAYOUTS, "unaligned")
ALIGNMENT = 64
PAST = 16  # every type has elements that can begin there


def shape_of(size: int, dtype: str) -> tuple[int, int]:
    """Rows and columns of a tensor of so many bytes, as square as can be."""
    count = size // samples.numpy_dtype(dtype).itemsize
    rows = next(rows for rows in range(math.isqrt(count), 0, -1) if count % rows == 0)
    return rows, count // rows


def make(framework: str, shape: tuple[int, int], *, dtype: str, layout: str, device: str) -> Any:
    """A tensor of random values."""
    if layout == "unaligned":
        return _unaligned(framework, shape, dtype, device)
    x = samples.make(framework, shape, dtype=dtype, layout=layout, device=device)
    return _aligned(x) if framework == "numpy" else x


def _aligned(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same view of the same values, where the memory begins at a multiple of 64."""
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    block = np.empty(base.nbytes + ALIGNMENT, np.uint8)
    first = -block.ctypes.data % ALIGNMENT
    room = block[first : first + base.nbytes]
    room[:] = base.reshape(-1).view(np.uint8)
    offset = x.ctypes.data - base.ctypes.data
    placed: np.ndarray[Any, Any] = np.ndarray(
        x.shape, x.dtype, room.data, offset=offset, strides=x.strides
    )
    placed.flags.writeable = x.flags.writeable
    return placed


def _unaligned(framework: str, shape: tuple[int, int], dtype: str, device: str) -> Any:
    if framework in ("jax", "tensorflow", "mlx"):
        raise ferry.UnsupportedLayout(
            f"{framework} has no unaligned tensors: what it cuts is a new dense tensor"
            "\nhint: write --layouts dense"
        )
    past = PAST // samples.numpy_dtype(dtype).itemsize
    long = samples.make(framework, (math.prod(shape) + past,), dtype=dtype, device=device)
    return (_aligned(long) if framework == "numpy" else long)[past:].reshape(shape)
