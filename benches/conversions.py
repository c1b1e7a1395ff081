"""Jobs that move bytes: copies, packing, casts and byte swaps.

To add a job, give it an entry in `JOBS`: how its source is made, and what we, NumPy and torch write
for it. `x` is the source as a NumPy array, `t` the same memory as a torch tensor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch


def random(dtype: str, count: int) -> np.ndarray:
    """Random values from 0 to 255, of any type: a block of them, repeated."""
    block = (np.random.default_rng().random(1 << 18, np.float32) * 255).astype(dtype)
    values = np.empty(count, dtype)
    for start in range(0, count, block.size):
        part = values[start : start + block.size]
        part[:] = block[: part.size]
    return values


def square(size: int) -> np.ndarray:
    side = int((size / 4) ** 0.5)
    return random("float32", side * side).reshape(side, side)


def block_slice(size: int) -> np.ndarray:
    return random("float32", size // 2).reshape(-1, 2048)[:, 512:1536]


@dataclass(frozen=True)
class Job:
    name: str
    source: Callable[[int], np.ndarray]  # an array with this number of bytes, gaps not counted
    ours: str
    numpy: str
    torch: str
    base: int = 1  # bytes of memory behind each byte of the source
    result: float = 1  # bytes of result for each byte of the source


def cast(before: str, after: str) -> Job:
    width, result_width = np.dtype(before).itemsize, np.dtype(after).itemsize
    return Job(
        f"{before} to {after}",
        lambda size: random(before, size // width),
        f'ferry.to(x, "numpy", dtype="{after}")',
        f'x.astype("{after}")',
        f"t.to(torch.{after})",
        result=result_width / width,
    )


COPY = 'ferry.to(x, "numpy", copy=True)'
JOBS = [
    Job("dense copy", lambda size: random("float32", size // 4), COPY, "x.copy()", "t.clone()"),
    Job("transposed", lambda size: square(size).T, COPY, "x.copy()", "t.contiguous()"),
    Job(
        "every second",
        lambda size: random("float32", size // 2)[::2],
        COPY,
        "x.copy()",
        "t.contiguous()",
        base=2,
    ),
    Job("block slice", block_slice, COPY, "x.copy()", "t.contiguous()", base=2),
    cast("float64", "float32"),
    cast("float32", "float16"),
    cast("float16", "float32"),
    cast("float32", "bfloat16"),
    cast("bfloat16", "float32"),
    cast("uint8", "float32"),
    Job(
        "byte swap",
        lambda size: random(">f4", size // 4),
        'ferry.to(x, "torch")',
        "torch.from_numpy(x.astype('<f4'))",
        "t.view(torch.uint8).view(-1, 4).flip(1).view(torch.float32).view(-1)",
    ),
]


def as_torch(x: np.ndarray) -> torch.Tensor:
    """The same memory as a torch tensor; bytes in the other order are torch's as they stand."""
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x.view(x.dtype.newbyteorder("=")))


def bits(result: Any) -> np.ndarray:
    """A result of either framework as plain bytes."""
    if isinstance(result, torch.Tensor):
        result = result.view({2: torch.int16, 4: torch.int32}[result.itemsize]).numpy()
    array = np.asarray(result)
    if not array.flags.c_contiguous:
        raise AssertionError("a result is not dense")
    return array.reshape(-1).view(np.uint8)
