"""Reductions and running sums for TensorFlow, against array-api-strict."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support.strict_namespace import (
    ANY,
    COMPLEX,
    FLOATING,
    INTEGER,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    check_strict,
    values,
    xp,
)

import tensorferry as ferry

REDUCTIONS = {
    "all": ANY, "any": ANY, "count_nonzero": ANY, "max": REAL, "mean": FLOATING, "min": REAL,
    "prod": NUMERIC, "std": REAL_FLOATING, "sum": NUMERIC, "var": REAL_FLOATING,
}  # fmt: skip
AXES = [None, 0, 1, -1, (0, 2), (1,), (), (-1, 0, 1)]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_and_types(name):
    for dtype in REDUCTIONS[name]:
        x = values(dtype, (2, 3, 4), small=True)
        for axis in AXES:
            for keepdims in (False, True):
                check_strict(name, x, axis=axis, keepdims=keepdims)
        check_strict(name, values(dtype, (), small=True))
        if name not in ("max", "min", "mean", "std", "var"):
            check_strict(name, values(dtype, (0, 3)), axis=0)
    for dtype in set(ANY) - set(REDUCTIONS[name]) - ({"bool"} if name == "sum" else set()):
        with pytest.raises(TypeError, match=name):
            getattr(xp, name)(tf.constant(values(dtype)))
    for axis in (3, -4, (0, 0)):
        with pytest.raises(ferry.InvalidArgumentError, match="axis"):
            getattr(xp, name)(xp.ones((2, 3, 4), dtype=REDUCTIONS[name][-1]), axis=axis)


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod"])
def test_result_types(name):
    for dtype in NUMERIC:
        for wanted in NUMERIC:
            if dtype in COMPLEX and wanted not in COMPLEX:
                with pytest.raises(ferry.InvalidArgumentError, match="imaginary"):
                    getattr(xp, name)(xp.ones(2, dtype=dtype), dtype=getattr(xp, wanted))
                continue
            if dtype in REAL_FLOATING and wanted in INTEGER:
                continue
            x = np.abs(values(dtype, (4,), small=True))
            x = x if wanted not in COMPLEX or dtype in COMPLEX else x.astype(dtype)
            check_strict(name, x.astype(dtype), dtype=wanted)


def test_sums_wrap_in_the_widest_type():
    for dtype in INTEGER:
        check_strict("sum", values(dtype, (50,)))
        check_strict("prod", values(dtype, (50,)))
        check_strict("cumulative_sum", values(dtype, (50,)))


def test_bools_are_counted():
    total = xp.sum(tf.constant([[True, False], [True, True]]), axis=0)
    assert total.dtype == xp.int64
    assert total.numpy().tolist() == [2, 1]


@pytest.mark.parametrize("name", ["max", "min", "sum", "mean", "prod", "any", "all"])
def test_special_values(name):
    for special in ([1.0, np.nan, 2.0], [np.inf, -np.inf, 1.0], [0.0, np.inf], [np.nan, -np.inf]):
        for dtype in REAL_FLOATING:
            check_strict(name, np.array(special, dtype))


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_nothing(name):
    with pytest.raises(ferry.InvalidArgumentError, match="empty"):
        getattr(xp, name)(xp.zeros((2, 0)), axis=1)
    assert getattr(xp, name)(xp.zeros((0, 2)), axis=1).shape == (0,)


@pytest.mark.parametrize("name", ["var", "std"])
def test_corrections(name):
    for dtype in REAL_FLOATING:
        for correction in (0, 1, 1.5):
            for axis in (None, 0, (0, 2)):
                check_strict(name, values(dtype, (2, 3, 4)), axis=axis, correction=correction)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_running_totals(name):
    for dtype in NUMERIC:
        for axis in (0, 1, -1):
            for include_initial in (False, True):
                x = values(dtype, (3, 4), small=True)
                check_strict(name, x, axis=axis, include_initial=include_initial)
        check_strict(name, values(dtype, (5,), small=True))
    with pytest.raises(ferry.InvalidArgumentError, match="axis"):
        getattr(xp, name)(xp.ones((2, 2)))


def test_differences():
    for dtype in NUMERIC:
        x = values(dtype, (3, 4))
        for axis in (0, 1, -1):
            for n in (0, 1, 2):
                check_strict("diff", x, axis=axis, n=n)
        end = values(dtype, (3, 2), seed=1)
        check_strict("diff", x, prepend=end, append=end[:, :1])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=["float16", "bfloat16"])
def test_16_bits_are_summed_in_more(dtype):
    """In their own type a running sum stands still at 2048 or 256, and squares are infinite."""
    many = xp.ones(70000, dtype=dtype)
    assert float(xp.mean(many)) == 1
    assert float(xp.std(xp.asarray([300, -300], dtype=dtype))) == 300
    assert float(xp.var(xp.asarray([3, -3], dtype=dtype))) == 9
    sums = xp.cumulative_sum(many[:3000], include_initial=True)
    assert float(sums[-1]) == float(tf.cast(3000, dtype))
    assert float(sums[0]) == 0
    norm = xp.linalg.vector_norm(xp.full(16, 300, dtype=dtype))
    assert float(norm) == 1200
    found = (xp.mean(many), xp.std(many), xp.var(many), sums, norm)
    assert {x.dtype for x in found} == {dtype}
