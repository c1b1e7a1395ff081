"""Every framework, case and dtype through a pickle, bit by bit."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from matrix.cells import CASES, FRAMEWORK_SOURCES, Cell
from matrix.check import Failures, told
from matrix.constructors import dtypes_of, make
from support.capsules import dense_strides
from support.dtypes import significant
from support.introspect import FRAMEWORKS, INSPECTORS, TYPES, has_dtype, x64

import tensorferry as ferry
from tensorferry import pickling

PAIRS = [
    (source, case)
    for source in FRAMEWORK_SOURCES
    for case in CASES
    if dtypes_of(source, case) and case != "variable"
]

#: Frameworks whose tensors may be written.
WRITABLE = ("torch", "paddle")


def is_permuted(cell: Cell) -> bool:
    """Whether the elements fill their memory in some order of the dimensions."""
    facts = cell.facts
    step = facts.dtype.size
    axes = [(stride, n) for n, stride in zip(facts.shape, facts.strides, strict=True) if n != 1]
    for stride, n in sorted(axes):
        if stride != step:
            return facts.count == 0
        step *= n
    return True


def check_values(framework: str, result: Any, cell: Cell) -> None:
    look = INSPECTORS[framework]
    assert isinstance(result, TYPES[framework])
    assert look.dtype(result) == cell.facts.dtype.name
    assert look.shape(result) == cell.facts.shape
    assert significant(cell.facts.dtype, look.values(result)) == cell.values


def check_strides(framework: str, result: Any, cell: Cell) -> None:
    """Dense layouts keep the order of their dimensions, others are packed."""
    strides, shape = INSPECTORS[framework].strides(result), cell.facts.shape
    if strides is None or cell.facts.count == 0:
        return
    kept = is_permuted(cell) and not cell.facts.pending
    expected = cell.facts.strides if kept else dense_strides(shape, cell.facts.dtype.size)
    assert told(strides, shape) == told(expected, shape)


def is_payload(cell: Cell) -> bool:
    """Whether the object is of a type that has payloads, and not left to its own reducer."""
    return type(cell.object) in pickling.dispatch_table()


@pytest.mark.parametrize(("source", "case"), PAIRS)
def test_cell_comes_back(source: str, case: str) -> None:
    failures = Failures()
    for dtype in dtypes_of(source, case):
        with failures.observe(dtype), x64(True):
            cell = make(source, case, dtype)
            assert cell is not None
            data, buffers = pickling.dumps(cell.object)
            result = pickling.loads(data, buffers)
            assert type(result) is type(cell.object)
            check_values(source, result, cell)
            if not is_payload(cell):
                continue
            assert [buffer.raw().nbytes for buffer in buffers] == [cell.facts.count * dtype.size]
            check_strides(source, result, cell)
            if source == "numpy":
                assert result.dtype == cell.object.dtype
                assert result.flags.writeable == (
                    cell.object.flags.writeable or not is_permuted(cell)
                )
            shares = is_permuted(cell) and not cell.facts.pending and cell.facts.count
            if source != "numpy" and cell.facts.address % dtype.size:
                shares = False  # others read elements at multiples of their size only
            if shares and source in ("numpy", *WRITABLE) and not cell.facts.frozen:
                assert INSPECTORS[source].address(result) == cell.facts.address
    failures.report()


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "in band", "protocol 4"])
@pytest.mark.parametrize(("source", "case"), PAIRS)
def test_cell_comes_back_over_other_memory(source: str, case: str, kind: str) -> None:
    failures = Failures()
    for dtype in dtypes_of(source, case):
        with failures.observe(dtype), x64(True):
            cell = make(source, case, dtype)
            assert cell is not None
            received: list[Any] = []
            if kind in ("bytes", "bytearray"):
                data, buffers = pickling.dumps(cell.object)
                received = [
                    (bytes if kind == "bytes" else bytearray)(each.raw()) for each in buffers
                ]
                result = pickling.loads(data, received)
            else:
                result = pickle.loads(in_band(cell.object, 5 if kind == "in band" else 4))
            assert type(result) is type(cell.object)
            check_values(source, result, cell)
            if not is_payload(cell) or cell.facts.count == 0:
                continue
            if kind in ("bytes", "bytearray"):
                if source != "jax":  # its arrays hide the order of their dimensions in memory
                    check_strides(source, result, cell)
                is_writable = kind == "bytearray" and not buffers[0].raw().readonly
                check_memory(source, result, received[0], is_writable)
    failures.report()


def in_band(obj: Any, protocol: int) -> bytes:
    file = io.BytesIO()
    pickling.Pickler(file, protocol).dump(obj)
    return file.getvalue()


def check_memory(
    framework: str, result: Any, received: bytes | bytearray, is_writable: bool
) -> None:
    """Writable buffers are shared with frameworks whose tensors may be written; read-only ones
    are not, so that a write to the result changes nothing else."""
    start = np.frombuffer(received, np.uint8).__array_interface__["data"][0]
    shares = INSPECTORS[framework].address(result) == start
    if framework == "numpy":
        assert shares
        assert result.flags.writeable == is_writable
    elif framework in WRITABLE:
        assert shares == is_writable


SOME_CASES = ("dense", "transposed", "sliced with step", "zero dimensions")


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize(("source", "case"), [pair for pair in PAIRS if pair[1] in SOME_CASES])
def test_every_framework_reads_every_other(source: str, target: str, case: str) -> None:
    failures = Failures()
    for dtype in dtypes_of(source, case):
        with failures.observe(dtype), x64(True):
            cell = make(source, case, dtype)
            assert cell is not None
            data, buffers = pickling.dumps([cell.object])
            if has_dtype(target, dtype):
                for each in (buffers, [bytes(buffer.raw()) for buffer in buffers]):
                    check_values(target, pickling.loads(data, each, target)[0], cell)
            else:
                with pytest.raises(ferry.UnsupportedDTypeError, match="hint: "):
                    pickling.loads(data, buffers, target)
    failures.report()
