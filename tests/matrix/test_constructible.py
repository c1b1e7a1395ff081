"""Nothing silently vanishes: what each source can and cannot make, counted and tried."""

from __future__ import annotations

import operator
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import paddle
import pytest
import torch

import jax.numpy as jnp  # isort: skip
import tensorflow as tf  # isort: skip

from matrix.cells import CASES, FRAMEWORK_SOURCES, SOURCES, cannot_make, form_of
from matrix.constructors import dtypes_of, make, pairs_of_source_and_case
from support.dtypes import ALL, NAMED
from support.introspect import JaxInspector, MlxInspector, TensorFlowInspector, has_dtype

# How many types of the table each framework must have at least, in its oldest supported version.
AT_LEAST = {"numpy": 28, "torch": 15, "jax": 17, "tensorflow": 19, "paddle": 12, "mlx": 14}

# How many (source, case) pairs there are, and in how many types at most: a number here is a
# promise.
CASES_OF = {
    "numpy": 22,
    "torch": 21,
    "jax": 8,
    "tensorflow": 8,
    "paddle": 17,
    "mlx": 13,
    "bytes": 2,
    "bytearray": 2,
    "memoryview": 22,
    "array.array": 2,
    "mmap": 2,
    "dlpack legacy": 18,
    "dlpack versioned": 20,
    "array interface": 22,
    "array method": 22,
}
EVERY_TYPE = {"numpy": 28, "array method": 28, "dlpack versioned": 28, "dlpack legacy": 23}
OWN_TYPES = {
    "memoryview": 14,
    "array interface": 14,
    "array.array": 10,
    "bytes": 1,
    "bytearray": 1,
    "mmap": 1,
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_cases_of_a_source(source: str) -> None:
    cases = [case for name, case in pairs_of_source_and_case() if name == source]
    assert len(cases) == CASES_OF[source], cases
    usual = "read-only" if source == "bytes" else "dense"
    count = len(dtypes_of(source, usual))
    if source in EVERY_TYPE | OWN_TYPES:
        assert count == (EVERY_TYPE | OWN_TYPES)[source]
    else:
        assert count >= AT_LEAST[source]


@pytest.mark.parametrize("source", SOURCES)
def test_a_maker_makes_what_it_says(source: str) -> None:
    """A cell has the shape, the type and the values of its case; what cannot be made is None,
    with a reason."""
    made = 0
    for case in CASES:
        for dtype in ALL:
            cell = make(source, case, dtype)
            reason = cannot_make(source, case, dtype)
            assert (cell is None) == (reason is not None)
            if cell is None:
                assert reason
                continue
            made += 1
            assert cell.facts.dtype == dtype
            assert len(cell.values) == cell.facts.count * dtype.size
            flat = (
                source in ("bytes", "bytearray", "array.array", "mmap") or case == "broken stride"
            )
            if not flat and case != "base dies":
                assert cell.facts.shape == form_of(case).shape
    assert made >= len(dtypes_of(source, "read-only" if source == "bytes" else "dense"))


def test_every_case_has_a_source_and_every_source_a_case() -> None:
    pairs = pairs_of_source_and_case()
    assert {case for _, case in pairs} == set(CASES)
    assert {source for source, _ in pairs} == set(SOURCES)


@pytest.mark.parametrize("framework", FRAMEWORK_SOURCES)
def test_the_common_types_are_everywhere(framework: str) -> None:
    """A feature check that fails by accident would make cells vanish."""
    common = ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32"]
    common += ["float64", "complex64", "bfloat16"]
    assert all(has_dtype(framework, NAMED[name]) for name in common)
    assert sum(has_dtype(framework, dtype) for dtype in ALL) >= AT_LEAST[framework]


def _base() -> np.ndarray:
    return np.arange(24, dtype=np.float32).reshape(4, 6)


def _strides_are_dense(look: type, x: object) -> bool:
    return look.strides(x)[-1] == 4 and look.strides(x)[0] == 4 * look.shape(x)[1]


# Why a case is missing, tried: an error where the framework raises, False where it makes something
# else instead.
IMPOSSIBLE: dict[str, Callable[[], object]] = {
    "torch, negative step": lambda: torch.from_numpy(_base())[::-1],
    "torch, negative strides": lambda: torch.zeros(12).as_strided((3,), (-1,)),
    "torch, other byte order": lambda: torch.from_numpy(_base().astype(">f4")),
    "torch, gradients of integers": lambda: torch.zeros(3, dtype=torch.int32).requires_grad_(),
    "torch, negative view of a bool resolves": lambda: torch._neg_view(
        torch.ones(2, dtype=torch.bool)
    ).resolve_neg(),
    "paddle, ten dimensions": lambda: paddle.utils.dlpack.from_dlpack(
        torch.utils.dlpack.to_dlpack(torch.zeros([1] * 10))
    ),
    "jax, sliced": lambda: not _strides_are_dense(JaxInspector, jnp.asarray(_base())[:, ::2]),
    "jax, unaligned": lambda: jnp.asarray(_base())[1:].unsafe_buffer_pointer() % 64 != 0,
    "tensorflow, unaligned": lambda: (
        TensorFlowInspector.address(tf.constant(_base())[1:]) % 64 != 0
    ),
    "mlx, in memory of somebody else": lambda: (
        MlxInspector.address(mx.array(_SOMEBODYS)) == _SOMEBODYS.ctypes.data
    ),
    "numpy, sixty-five dimensions": lambda: np.zeros([1] * 65),
    "memoryview, bfloat16": lambda: memoryview(np.zeros(3, NAMED["bfloat16"].numpy)),
    "bytes, written": lambda: operator.setitem(b"abc", 0, 1),
}
_SOMEBODYS = _base()


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_cannot_be_made_cannot_be_made(what: str) -> None:
    try:
        made = IMPOSSIBLE[what]()
    except (ValueError, TypeError, RuntimeError, NotImplementedError, BufferError):
        return
    assert made is False, f"{what}: it can be made now; give the matrix the case"
