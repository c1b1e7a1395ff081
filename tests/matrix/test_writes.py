"""Writes by the frameworks' own hands: seen through a share from both sides, never through a
copy."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
import torch
from matrix.cells import Cell
from matrix.check import Failures
from matrix.constructors import dtypes_of, make
from matrix.expect import expect
from support.dtypes import DType, significant
from support.introspect import FRAMEWORKS, INSPECTORS, values_now

import tensorferry as ferry

WRITERS = ("numpy", "torch", "paddle")
CASES = (
    "dense",
    "transposed",
    "sliced with step",
    "storage offset",
    "requires grad, leaf",
    "read-only",
)


def write(framework: str, x: Any, dtype: DType) -> None:
    """Puts the value of the last element into the first, or of a bool its opposite."""
    first, last = (0,) * x.ndim, tuple(n - 1 for n in x.shape)
    with torch.no_grad(), paddle.no_grad():
        if dtype.kind == "bool":
            x[first] = not bool(x[first])
        else:
            x[first] = x[last] if framework == "numpy" else x[last].clone()


def can_write(framework: str, dtype: DType) -> bool:
    """Paddle has no kernels to write these."""
    return framework != "paddle" or (
        dtype.name not in ("uint32", "uint64") and "float8" not in dtype.name
    )


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", WRITERS)
def test_a_write_to_the_source(source: str, target: str) -> None:
    """Seen in a share, not in a copy. (JAX and TensorFlow ask that it is not done; the memory is
    still the same.)"""
    failures = Failures()
    for case, dtype, copy in _cells(source, source):
        with failures.observe(f"{dtype}, {case}, copy={copy}"):
            cell = make(source, case, dtype)
            outcome = expect(cell.facts, target, copy=copy)
            if outcome.error or cell.facts.frozen:
                continue
            result = ferry.to(cell.object, target, copy=copy)
            write(source, cell.object, dtype)
            assert significant(dtype, INSPECTORS[source].values(cell.object)) != cell.values
            seen = significant(dtype, values_now(target, result))
            if outcome.action == "copy":
                assert seen == cell.values, "the copy saw the write"
            else:
                assert seen == significant(dtype, INSPECTORS[source].values(cell.object)), (
                    "the share did not see the write"
                )
    failures.report()


@pytest.mark.parametrize("target", WRITERS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_a_write_to_the_result(source: str, target: str) -> None:
    """Seen in the source of a share, not in that of a copy; refused where the result is
    read-only."""
    failures = Failures()
    for case, dtype, copy in _cells(source, target):
        with failures.observe(f"{dtype}, {case}, copy={copy}"):
            cell = make(source, case, dtype)
            outcome = expect(cell.facts, target, copy=copy)
            if outcome.error or outcome.action == "itself":
                continue
            result = ferry.to(cell.object, target, copy=copy)
            if not outcome.writable:
                with pytest.raises(ValueError, match="read-only"):
                    write(target, result, dtype)
                with pytest.raises(ValueError, match="WRITEABLE"):
                    result.flags.writeable = True
                assert values_of_source(cell, source) == cell.values
                continue
            write(target, result, dtype)
            assert significant(dtype, INSPECTORS[target].values(result)) != cell.values
            if outcome.action == "copy":
                assert values_of_source(cell, source) == cell.values, "the write reached the source"
            else:
                assert values_of_source(cell, source) == significant(
                    dtype, INSPECTORS[target].values(result)
                )
    failures.report()


@pytest.mark.parametrize("target", WRITERS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_a_writable_result_does_no_harm(source: str, target: str) -> None:
    """`writable=True` gives memory that may be written: that of a mutable source, or nobody
    else's."""
    failures = Failures()
    for case, dtype, copy in _cells(source, target):
        if copy is not None:
            continue
        with failures.observe(f"{dtype}, {case}"):
            cell = make(source, case, dtype)
            if expect(cell.facts, target, writable=True).error:
                continue
            result = ferry.to(cell.object, target, writable=True)
            write(target, result, dtype)
            assert significant(dtype, INSPECTORS[target].values(result)) != cell.values
            if cell.facts.frozen or cell.facts.immutable:
                assert values_of_source(cell, source) == cell.values
    failures.report()


def values_of_source(cell: Cell, source: str) -> bytes:
    """What the source shows now."""
    return significant(cell.facts.dtype, values_now(source, cell.object))


def _cells(source: str, writer: str):
    for case in CASES:
        for dtype in dtypes_of(source, case):
            if can_write(writer, dtype) and not dtype.is_narrow:
                for copy in (None, True):
                    yield case, dtype, copy
