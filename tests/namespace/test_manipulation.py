"""Shapes, joining and indexing for TensorFlow, against array-api-strict."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest
import tensorflow as tf
from support.strict_namespace import ANY, INTEGER, agree, check_strict, values, xp

import tensorferry as ferry


@pytest.mark.parametrize("dtype", ANY)
def test_shapes(dtype):
    x = values(dtype, (2, 3, 4))
    for shape in ((6, 4), (-1,), (2, -1, 2), (4, 3, 2), (24,)):
        check_strict("reshape", x, shape)
    check_strict("reshape", x, (24,), copy=True)
    for axes in ((0, 1, 2), (2, 0, 1), (-1, 0, -2)):
        check_strict("permute_dims", x, axes)
    for axis in (0, 1, 3, -1, -4):
        check_strict("expand_dims", x, axis=axis)
    check_strict("moveaxis", x, 0, -1)
    check_strict("moveaxis", x, (0, 1), (2, 0))
    check_strict("moveaxis", x, -1, 0)
    for axis in (None, 0, -1, (0, 2)):
        check_strict("flip", x, axis=axis)
    for axis in (0, 2, (0, 2), (-1,)):
        check_strict("squeeze", values(dtype, (1, 3, 1)), axis)
    for shift, axis in ((2, None), (-1, 0), (5, -1), ((1, 2), (0, 2)), (1, (0, 1))):
        check_strict("roll", x, shift, axis=axis)
    for repetitions in ((2,), (1, 2, 3), (2, 1, 1, 2), ()):
        check_strict("tile", x, repetitions)
    for axis in (None, 0, 2, -1):
        check_strict("repeat", x, 2, axis=axis)
        check_strict("repeat", x, 0, axis=axis)
    check_strict("repeat", x, np.array([1, 0, 3]), axis=1)
    for axis in (0, 1, -1):
        check_strict("unstack", x, axis=axis)
    check_strict("broadcast_to", values(dtype, (3, 1)), (2, 3, 4))
    check_strict(
        "broadcast_arrays", values(dtype, (3, 1)), values(dtype, (2, 1, 4)), values("bool", ())
    )


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_joining(name):
    for dtype in ANY:
        x, y = values(dtype, (2, 3)), values(dtype, (2, 3), seed=1)
        for axis in (0, 1, -1, *([None] if name == "concat" else [2])):
            check_strict(name, [x, y, x], axis=axis)
    check_strict(name, (values("int8", (2,)), values("uint8", (2,)), values("int32", (2,))))
    check_strict(name, (values("float32", (2,)), values("complex64", (2,))))
    with pytest.raises(TypeError, match="undefined"):
        getattr(xp, name)([xp.ones(2), xp.ones(2, dtype=xp.int32)])
    with pytest.raises(ferry.InvalidArgumentError, match="needs a tensor"):
        getattr(xp, name)([])


def test_broadcast_shapes():
    for shapes in (((2, 1), (3,)), ((), (4,)), ((0, 1), (1, 5)), ((2, 3),)):
        assert xp.broadcast_shapes(*shapes) == strict.broadcast_shapes(*shapes)
    with pytest.raises(ferry.InvalidArgumentError, match="broadcast"):
        xp.broadcast_shapes((2,), (3,))
    with pytest.raises(ferry.InvalidArgumentError, match="broadcast"):
        xp.broadcast_arrays(xp.ones(2), xp.ones(3))
    with pytest.raises(ferry.InvalidArgumentError, match="broadcast_to"):
        xp.broadcast_to(xp.ones((2, 3)), (1, 3))


def test_wrong_arguments():
    x = xp.ones((2, 3))
    for call, says in (
        (lambda: xp.squeeze(x, 0), "size is 2"),
        (lambda: xp.permute_dims(x, (0,)), "1 axes"),
        (lambda: xp.permute_dims(x, (0, 0)), "twice"),
        (lambda: xp.moveaxis(x, (0, 1), 0), "2 sources"),
        (lambda: xp.roll(x, (1, 1)), "without an axis"),
        (lambda: xp.expand_dims(x, axis=4), "axis 4"),
        (lambda: xp.take(x, tf.constant([0])), "axis"),
        (lambda: xp.repeat(x, -1), "-1 repeats"),
        (lambda: xp.nonzero(xp.asarray(1)), "dimensions"),
        (lambda: xp.take_along_axis(x, tf.constant([0])), "dimensions"),
    ):
        with pytest.raises(ferry.InvalidArgumentError, match=says) as refused:
            call()
        assert refused.value.hint


@pytest.mark.parametrize("dtype", ANY)
def test_indexing(dtype):
    x = values(dtype, (3, 4, 2))
    for axis in (0, 1, -1):
        check_strict("take", x, np.array([1, 0, 1, -1]), axis=axis)
        length = x.shape[axis]
        shape = list(x.shape)
        shape[axis] = 5
        indices = np.arange(np.prod(shape)).reshape(shape) % (2 * length) - length
        check_strict("take_along_axis", x, indices, axis=axis)
        shape = [1, 1, 1]
        shape[axis] = 2
        check_strict("take_along_axis", x, np.ones(shape, np.int64), axis=axis)
    check_strict("take", values(dtype, (5,)), np.array([], np.int64))
    check_strict("nonzero", values(dtype, (3, 4), small=True))
    check_strict("nonzero", values(dtype, (5,), small=True))
    check_strict("where", values("bool", (3, 1)), values(dtype, (4,)), values(dtype, (3, 4)))


def test_indices_of_every_integer_type():
    x, indices = values("float32", (5, 2)), [4, 0, 2]
    want = strict.take(strict.asarray(x), strict.asarray(indices), axis=0)
    for dtype in INTEGER:
        agree(xp.take(tf.constant(x), tf.constant(np.array(indices, dtype)), axis=0), want)
    with pytest.raises(TypeError, match="take"):
        xp.take(xp.ones(3), xp.ones(2), axis=0)


def test_where_with_scalars():
    mask = values("bool", (4,))
    check_strict("where", mask, values("float32", (4,)), 0)
    check_strict("where", mask, 1.5, values("float64", (4,)))
    check_strict("where", mask, values("int8", (4,)), -1)
    with pytest.raises(TypeError, match="where"):
        xp.where(xp.ones(4), xp.ones(4), 0)


def test_masks_are_tensorflows_own():
    x, mask = values("float32", (3, 4)), values("bool", (3, 4))
    agree(tf.constant(x)[tf.constant(mask)], strict.asarray(x)[strict.asarray(mask)])
