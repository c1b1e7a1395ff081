"""The tensors that are converted: each framework's own, in memory that the framework allocated.

The layout `unaligned` begins 16 bytes into such memory.
"""

import math
from typing import Any

import tensorferry as ferry
from tensorferry._tools import samples

LAYOUTS = (*samples.LAYOUTS, "unaligned")
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
    return samples.make(framework, shape, dtype=dtype, layout=layout, device=device)


def _unaligned(framework: str, shape: tuple[int, int], dtype: str, device: str) -> Any:
    if framework in ("jax", "tensorflow", "mlx"):
        raise ferry.UnsupportedError(
            f"{framework} has no unaligned tensors: what it cuts is a new dense tensor"
            "\nhint: write --layouts dense"
        )
    past = PAST // samples.numpy_dtype(dtype).itemsize
    long = samples.make(framework, (math.prod(shape) + past,), dtype=dtype, device=device)
    return long[past:].reshape(shape)
