"""The tensors that a benchmark converts, in memory that their framework has allocated.

The layout `unaligned` starts 16 bytes after the start of such memory.
"""

import math
from typing import Any

import tensorferry as ferry
from tensorferry._tools import samples

LAYOUTS = (*samples.LAYOUTS, "unaligned")
UNALIGNED_OFFSET_BYTES = 16  # a multiple of every element size


def shape_of(size: int, dtype: str) -> tuple[int, int]:
    """Rows and columns of a tensor of `size` bytes, as square as possible."""
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
            f"{framework} has no unaligned tensors: its slices are new dense tensors"
            "\nhint: write --layouts dense"
        )
    past = UNALIGNED_OFFSET_BYTES // samples.numpy_dtype(dtype).itemsize
    long = samples.make(framework, (math.prod(shape) + past,), dtype=dtype, device=device)
    return long[past:].reshape(shape)
