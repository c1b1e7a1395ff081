"""Tensors of more than 4 GiB and more than 2^32 elements: where a 32-bit number somewhere would
show. One at a time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from support.introspect import FRAMEWORKS, INSPECTORS
from support.memory import aligned

import tensorferry as ferry

pytestmark = pytest.mark.slow

ROWS, COLUMNS = 73_728, 65_536
SIZE = ROWS * COLUMNS
# Beside every power of two at which a number of fewer bits ends, and here and there.
POSITIONS = sorted(
    {0, 1, SIZE - 1, SIZE - 2, *range(12_345, SIZE, 123_456_789)}
    | {power + beside for power in (2**31, 2**32) for beside in (-1, 0, 1)}
)


@pytest.fixture(autouse=True)
def _room() -> Iterator[None]:
    """Memory is given back between tests."""
    yield
    gc.collect()
    mx.clear_cache() if hasattr(mx, "clear_cache") else mx.metal.clear_cache()


def marked(dtype: str, size: int) -> np.ndarray:
    """Zeros, aligned, with a number other than zero at each mark."""
    a = aligned(size, dtype)
    for number, mark in enumerate(mark for mark in POSITIONS if mark < size):
        a[mark] = 1 + number
    return a


def flat_numpy(target: str, x: Any) -> np.ndarray:
    """The result as a flat NumPy array without a copy, through the framework's own functions."""
    if target == "torch":
        x = x.numpy()
    elif target == "paddle":
        x = torch.from_dlpack(x).numpy()
    return np.asarray(x).reshape(-1)


def check(a: np.ndarray, result: np.ndarray, step: int = 1) -> None:
    """Marks where they were, and nothing elsewhere."""
    assert result.size == a[::step].size
    seen = [mark for mark in POSITIONS if mark < a.size and mark % step == 0]
    for mark in seen:
        assert result[mark // step] == a[mark], f"at {mark}"
    assert np.count_nonzero(result) == len(seen)


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_dense(target: str) -> None:
    a = marked("uint8", SIZE)
    x = a.reshape(ROWS, COLUMNS)
    plan = ferry.plan(x, target)
    result = ferry.to(x, target)
    assert plan.action == {"numpy": "itself", "mlx": "copy"}.get(target, "share")
    assert plan.bytes_moved == (SIZE if target == "mlx" else 0)
    assert INSPECTORS[target].shape(result) == (ROWS, COLUMNS)
    if target != "mlx":
        assert INSPECTORS[target].address(result) == a.ctypes.data
    check(a, flat_numpy(target, result))


@pytest.mark.parametrize("target", [name for name in FRAMEWORKS if name != "mlx"])
def test_one_long_dimension(target: str) -> None:
    """More elements in one dimension than 32 bits count. (MLX counts them in 32 bits: see
    below.)"""
    a = marked("uint8", SIZE)
    result = ferry.to(a, target)
    assert INSPECTORS[target].shape(result) == (SIZE,)
    check(a, flat_numpy(target, result))


def test_mlx_has_no_dimension_so_long() -> None:
    a = marked("uint8", SIZE)
    with pytest.raises(ferry.FerryError, match="hint: "):
        ferry.to(a, "mlx")


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_a_copy_of_everything(target: str) -> None:
    a = marked("uint8", SIZE)
    result = ferry.to(a.reshape(ROWS, COLUMNS), target, copy=True)
    assert INSPECTORS[target].address(result) != a.ctypes.data
    check(a, flat_numpy(target, result))


def test_backwards() -> None:
    a = marked("uint8", SIZE)
    result = ferry.to(a[::-1], "torch")
    check(a, result.numpy()[::-1])


def test_transposed() -> None:
    a = marked("uint8", SIZE)
    result = ferry.to(a.reshape(ROWS, COLUMNS).T, "tensorflow")
    assert result.shape == (COLUMNS, ROWS)
    seen = np.asarray(result)
    for mark in POSITIONS:
        assert seen[mark % COLUMNS, mark // COLUMNS] == a[mark]
    assert np.count_nonzero(seen) == len(POSITIONS)


def test_every_second_float() -> None:
    a = marked("float32", SIZE // 4)
    result = ferry.to(a[::2], "jax")
    check(a, np.asarray(result), step=2)


def test_cast_to_smaller() -> None:
    a = marked("float32", SIZE // 4)
    result = ferry.to(a, "numpy", dtype="float16")
    check(a, result)


def test_cast_to_larger() -> None:
    a = marked("uint8", SIZE)
    result = ferry.to(a, "numpy", dtype="uint16")
    check(a, result)


def test_other_byte_order() -> None:
    a = marked("float32", SIZE // 4)
    result = ferry.to(a.view(">f4"), "torch")
    swapped = result.numpy().view(np.uint32)
    assert np.count_nonzero(swapped) == np.count_nonzero(a)
    for mark in (mark for mark in POSITIONS if mark < a.size):
        assert swapped[mark] == a[mark : mark + 1].view(np.uint32).byteswap()[0]
