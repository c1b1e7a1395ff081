"""The matrix of the host with a GPU under it: every source there, in every case and type, to every
target, held against the same oracle."""

from __future__ import annotations

from typing import Any

import pytest
from gpu.cells import SOURCES, dtypes_of, make, pairs_of_source_and_case
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from matrix.cells import Cell
from matrix.check import Failures, check
from support.dtypes import NAMED, significant
from support.introspect import values_now

TARGETS = ("numpy", *SOURCES)


def is_in_place(cell: Cell, target: str, result: Any) -> bool:
    """Whether a result is where its framework should hold it. (TensorFlow keeps variables of some
    types in host memory.)"""
    if result is None or target == "numpy":
        return True
    return GPU_FRAMEWORKS[target].on_gpu(result) == (
        target == "cupy" or cell.facts.device == "cuda"
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("source", "case"), pairs_of_source_and_case())
def test_cell(source: str, case: str, target: str) -> None:
    failures = Failures()
    for dtype in dtypes_of(source, case):
        with failures.observe(dtype):
            cell = make(source, case, dtype)
            result = check(cell, target)
            assert is_in_place(cell, target, result)
            if case == "base dies" and result is not None:
                values = cell.values
                del cell
                others = [make(source, "dense", dtype) for _ in range(8)]
                GPU_FRAMEWORKS[source].wait()
                now = significant(dtype, values_now(target, result))
                assert now == values, "the values died with the base"
                del others
    failures.report()


OPTIONS = {
    "copy": {"copy": True},
    "no copy": {"copy": False},
    "writable": {"writable": True},
    "read-only": {"writable": False},
    "float16": {"dtype": NAMED["float16"]},
    "default type": {"dtype": "default"},
    "copy as int64": {"copy": True, "dtype": NAMED["int64"]},
}


@pytest.mark.parametrize("wish", OPTIONS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_options(source: str, target: str, wish: str) -> None:
    failures = Failures()
    for case in ("dense", "transposed", "sliced with step", "zero dimensions", "empty"):
        for dtype in dtypes_of(source, case):
            with failures.observe(f"{dtype}, {case}"):
                cell = make(source, case, dtype)
                result = check(cell, target, **OPTIONS[wish])
                assert is_in_place(cell, target, result)
    failures.report()
