"""copy=, writable= and dtype= over all pairs."""

from __future__ import annotations

import sys

import mlx.core as mx
import numpy as np
import paddle
import pytest
import torch
from matrix.cells import SOURCES, Cell
from matrix.check import Failures, check
from matrix.constructors import dtypes_of, make
from matrix.expect import expect
from support.dtypes import ALL, FLOAT32, NAMED
from support.introspect import FRAMEWORKS, INSPECTORS

import jax.numpy as jnp  # isort: skip
import tensorflow as tf  # isort: skip
import tensorferry as ferry

OPTIONS = {
    "copy": {"copy": True},
    "no copy": {"copy": False},
    "writable": {"writable": True},
    "read-only": {"writable": False},
    "writable copy": {"copy": True, "writable": True},
    "read-only copy": {"copy": True, "writable": False},
    "writable, no copy": {"copy": False, "writable": True},
    "read-only, no copy": {"copy": False, "writable": False},
    "default width": {"dtype": "default"},
    "default width, no copy": {"dtype": "default", "copy": False},
}

# Each says something of its own about sharing: layout, alignment, freezing, byte order, work put
# off.
CASES = (
    "dense",
    "transposed",
    "negative step",
    "unaligned by 1",
    "unaligned by 16",
    "zero dimensions",
    "empty",
    "read-only",
    "read-only map",
    "big-endian",
    "requires grad, leaf",
    "requires grad, not a leaf",
    "conjugate bit",
    "negative bit",
    "variable",
)


@pytest.mark.parametrize("wish", OPTIONS)
@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", SOURCES)
def test_option(source: str, target: str, wish: str) -> None:
    failures = Failures()
    for case in CASES:
        for dtype in dtypes_of(source, case):
            if dtype.size == 1 and dtype.name not in ("bool", "uint8", "int4", "float8_e5m2"):
                continue
            with failures.observe(f"{dtype}, {case}"):
                cell = make(source, case, dtype)
                assert cell is not None
                check(cell, target, **OPTIONS[wish])
    failures.report()


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", SOURCES)
def test_cast_on_the_way(source: str, target: str) -> None:
    """A cast gives the same values whatever the source and whatever the target."""
    failures = Failures()
    for case in (
        "dense",
        "transposed",
        "read-only",
        "unaligned by 1",
        "big-endian",
        "zero dimensions",
    ):
        for dtype in dtypes_of(source, case):
            if dtype.name not in ("uint8", "int16", "float32", "float64", "complex64", "bfloat16"):
                continue
            for wanted in (FLOAT32, NAMED["int32"], NAMED["complex64"], NAMED["bool"], dtype):
                with failures.observe(f"{dtype} to {wanted}, {case}"):
                    cell = make(source, case, dtype)
                    assert cell is not None
                    result = check(cell, target, dtype=wanted)
                    if result is None or wanted == dtype:
                        continue
                    reference = ferry.to(_as_numpy(cell), "numpy", dtype=wanted.name)
                    assert INSPECTORS[target].values(result) == reference.tobytes()
    failures.report()


def _as_numpy(cell: Cell) -> np.ndarray:
    """The cell's values as a dense NumPy array; casts of those are held against exact arithmetic
    in test_casts."""
    return np.frombuffer(cell.values, cell.facts.dtype.numpy).reshape(cell.facts.shape)


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_types_are_named_in_many_ways(target: str) -> None:
    """A string and the frameworks' own objects mean the same type."""
    x = np.arange(4, dtype=np.float32)
    names = ["float16", np.float16, np.dtype("float16"), torch.float16, jnp.float16]
    for name in [*names, tf.float16, mx.float16, paddle.float16]:
        assert INSPECTORS[target].dtype(ferry.to(x, target, dtype=name)) == "float16", name


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_frameworks_are_named_in_many_ways(target: str) -> None:
    """A name, another name and the module lead to the same framework."""
    other = {"numpy": "np", "torch": "pytorch", "tensorflow": "tf", "jax": "jnp", "mlx": "mlx.core"}
    x = np.arange(4, dtype=np.float32)
    module = sys.modules["mlx.core" if target == "mlx" else target]
    kinds = {type(ferry.to(x, name)) for name in (target, other.get(target, target), module)}
    assert len(kinds) == 1


def test_missing_types_say_what_to_do() -> None:
    """Every pair of type and target that does not exist is refused with a cast to ask for."""
    seen = 0
    for dtype in ALL:
        cell = make("numpy", "dense", dtype)
        for target in FRAMEWORKS:
            if expect(cell.facts, target).error is None:
                continue
            seen += 1
            with pytest.raises(ferry.UnsupportedDTypeError, match="hint: pass dtype=") as caught:
                ferry.to(cell.object, target)
            assert dtype.name in str(caught.value)
            assert isinstance(caught.value, TypeError)
    assert seen > 20
