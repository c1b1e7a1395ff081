"""Sorting, searching and sets for TensorFlow, against array-api-strict."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support.strict_namespace import (
    ANY,
    COMPLEX,
    INTEGER,
    REAL,
    REAL_FLOATING,
    check_strict,
    values,
    xp,
)

import tensorferry as ferry

ODD = [2.0, np.nan, -np.inf, 0.0, -0.0, np.inf, np.nan, -1.0, 0.0, 2.0]


@pytest.mark.parametrize("dtype", REAL)
def test_order(dtype):
    for x in (values(dtype, (3, 7)), values(dtype, (3, 7), small=True)):
        for axis in (0, 1, -1):
            for descending in (False, True):
                check_strict("sort", x, axis=axis, descending=descending)
                check_strict("argsort", x, axis=axis, descending=descending)
    if dtype in REAL_FLOATING:
        check_strict("sort", np.array(ODD, dtype))
        check_strict("argsort", np.array(ODD, dtype))
        down = xp.sort(tf.constant(ODD, dtype), descending=True).numpy()
        assert np.isnan(down[:2]).all()
        assert down[2] == np.inf
    limits = np.iinfo(dtype) if dtype not in REAL_FLOATING else np.finfo(dtype)
    check_strict("sort", np.array([limits.max, limits.min, 0, 1, limits.max, limits.min], dtype))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_indices_of_extremes(name):
    for dtype in REAL:
        for x in (values(dtype, (3, 7)), values(dtype, (3, 7), small=True)):
            for axis in (None, 0, 1, -1):
                for keepdims in (False, True):
                    check_strict(name, x, axis=axis, keepdims=keepdims)
    for dtype in REAL_FLOATING:
        check_strict(name, np.array(ODD, dtype))
        check_strict(name, np.array(ODD[2:6], dtype))
        check_strict(name, np.array([np.inf, np.nan, np.inf, -np.inf], dtype))
    check_strict(name, np.zeros(100_000, np.float32))  # on several threads the first must still win
    with pytest.raises(ferry.InvalidArgumentError, match="empty"):
        getattr(xp, name)(xp.zeros((0,)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searching_what_is_sorted(side):
    for dtype in REAL:
        line = np.sort(values(dtype, (9,), small=True))
        check_strict("searchsorted", line, values(dtype, (3, 4), small=True, seed=1), side=side)
        check_strict("searchsorted", line, line, side=side)
        mixed = values(dtype, (9,), small=True)
        sorter = np.argsort(mixed, kind="stable")
        check_strict("searchsorted", mixed, line, side=side, sorter=sorter)
    with pytest.raises(ferry.InvalidArgumentError, match="side"):
        xp.searchsorted(xp.ones(2), xp.ones(2), side="middle")


@pytest.mark.parametrize("dtype", ANY)
def test_sets(dtype):
    samples = [values(dtype, (3, 5), small=True), values(dtype, (0,)), values(dtype, ())]
    if dtype in COMPLEX:
        samples = [np.round(sample) for sample in samples]
        samples[2] = np.asarray(samples[2])
    if dtype in REAL_FLOATING:
        samples.append(np.round(values(dtype, (40,))))
        samples.append(np.array([1.0, np.nan, 1.0, np.nan, np.inf], dtype))
    for x in samples:
        for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
            check_strict(name, x)


def test_membership():
    for dtype in ANY:
        x, y = values(dtype, (3, 4), small=True), values(dtype, (5,), small=True, seed=1)
        y[0] = x[0, 0]
        pairs = [(x, y), (x, x[:0])]
        if dtype in REAL_FLOATING:
            pairs.append((np.array(ODD, dtype), np.array(ODD, dtype)))
        for one, other in pairs:
            for invert in (False, True):
                got = xp.isin(tf.constant(one), tf.constant(other), invert=invert)
                assert np.array_equal(got.numpy(), np.isin(one, other, invert=invert)), dtype
            if dtype in INTEGER:  # array-api-strict supports no others, and does not invert
                check_strict("isin", one, other)


def test_sorting_is_differentiated():
    x = tf.constant([3.0, 1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = xp.sum(xp.sort(x) * xp.asarray([1.0, 10.0, 100.0]))
    slope = tf.convert_to_tensor(tape.gradient(y, x))
    assert slope.numpy().tolist() == [100.0, 1.0, 10.0]
