"""64-bit values and JAX: refused while x64 is off, shared while it is on, read at each call."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from matrix.cells import SOURCES
from matrix.check import Failures, check
from matrix.constructors import dtypes_of, make
from support.dtypes import ALL, NAMED
from support.introspect import INSPECTORS, x64

import tensorferry as ferry

DTYPES_64_BIT = [dtype for dtype in ALL if dtype.is_64_bit]


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "jax"])
def test_refused_while_off(source: str) -> None:
    failures = Failures()
    for case in ("dense", "transposed", "read-only", "empty", "zero dimensions"):
        for dtype in dtypes_of(source, case):
            with failures.observe(f"{dtype}, {case}"):
                cell = make(source, case, dtype)
                if not dtype.is_64_bit:
                    check(cell, "jax")
                    continue
                with pytest.raises(ferry.UnsupportedDTypeError, match='dtype="default"') as caught:
                    ferry.to(cell.object, "jax")
                assert dtype.narrowed.name in caught.value.hint
                result = check(cell, "jax", dtype="default")
                assert result.dtype.name == dtype.narrowed.name
    failures.report()


@pytest.mark.parametrize("source", SOURCES)
def test_carried_while_on(source: str) -> None:
    failures = Failures()
    with x64(True):
        for case in (
            "dense",
            "transposed",
            "negative step",
            "unaligned by 16",
            "empty",
            "zero dimensions",
        ):
            for dtype in dtypes_of(source, case):
                with failures.observe(f"{dtype}, {case}"):
                    result = check(make(source, case, dtype), "jax")
                    assert result is None or result.dtype.name == dtype.name
        for dtype in dtypes_of(source, "dense"):
            with failures.observe(f"{dtype}, default width"):
                check(make(source, "dense", dtype), "jax", dtype="default")
    # Some sources have the cases in no type at all; each has one of them in some type, but bytes.
    if source == "bytes":
        return
    failures.report()


def test_read_at_each_call() -> None:
    x = np.arange(4, dtype=np.int64)
    for _ in range(3):
        with pytest.raises(ferry.UnsupportedDTypeError):
            ferry.to(x, "jax")
        with x64(True):
            assert ferry.to(x, "jax").dtype == np.int64
            with x64(False), pytest.raises(ferry.UnsupportedDTypeError):
                ferry.plan(x, "jax")
            assert ferry.plan(x, "jax").dtype == "int64"


def test_read_on_the_thread_that_calls() -> None:
    """JAX's switch belongs to a thread while it is a context."""
    x = np.arange(4, dtype=np.float64)
    seen: list[str] = []

    def call() -> None:
        try:
            seen.append(ferry.to(x, "jax").dtype.name)
        except ferry.UnsupportedDTypeError as error:
            seen.append(type(error).__name__)

    with x64(True):
        call()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert seen == ["float64", "UnsupportedDTypeError"]


@pytest.mark.parametrize("dtype", DTYPES_64_BIT, ids=str)
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "paddle", "mlx"])
def test_wide_arrays_leave_jax_whole(dtype, target: str) -> None:
    """An array that was made while x64 was on keeps its width on the way out, on or off."""
    cell = make("jax", "dense", dtype)
    result = check(cell, target)
    if result is not None:
        assert INSPECTORS[target].dtype(result) == dtype.name


def test_the_default_width_is_a_cast_like_any_other() -> None:
    x = np.array([0, 1, -1, 2**31 - 1, -(2**31)], dtype=np.int64)
    assert np.asarray(ferry.to(x, "jax", dtype="default")).tolist() == x.tolist()
    assert ferry.plan(x, "jax", dtype="default").steps[0][0] == "cast"
    y = np.array([1e300, -1e300, np.pi], dtype=np.float64)
    with np.errstate(over="ignore"):
        expected = y.astype(np.float32)
    assert np.asarray(ferry.to(y, "jax", dtype="default")).tobytes() == expected.tobytes()
    assert NAMED["float64"].narrowed.name == "float32"
