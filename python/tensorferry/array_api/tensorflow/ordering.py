"""Sorting, and searching sorted tensors.

TensorFlow's own order has no place for NaN, which lands anywhere. Floats are therefore ordered by
integers made of their bits, in which NaN is the largest and both zeros are one.
"""

from __future__ import annotations

import builtins
from typing import Any

from tensorferry.array_api.tensorflow.dtypes import INTEGER, REAL, REAL_FLOATING
from tensorferry.array_api.tensorflow.tensors import (
    Scalar,
    Tensor,
    all_axes,
    axis_back,
    axis_last,
    invalid,
    one_axis,
    rank,
    tensor,
    tf,
    together,
)


def sort_key(x: Tensor) -> Tensor:
    """Integers that sort in the same order as the elements."""
    if x.dtype == tf.bool:
        return tf.cast(x, tf.uint8)
    if x.dtype not in REAL_FLOATING.members:
        return x
    if x.dtype.size == 2:
        x = tf.cast(x, tf.float32)
    twin = tf.int32 if x.dtype == tf.float32 else tf.int64
    bits = tf.bitcast(x + tf.zeros([], x.dtype), twin)
    key = tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, tf.constant(twin.max, twin)), bits)
    return tf.where(tf.math.is_nan(x), tf.constant(twin.max, twin), key)


def order(x: Tensor, descending: builtins.bool = False) -> Tensor:
    """The indices that sort the last axis; equal elements keep their order."""
    direction = "DESCENDING" if descending else "ASCENDING"
    return tf.argsort(sort_key(x), axis=-1, direction=direction, stable=True)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The indices that sort along an axis; always stable."""
    x = tensor("argsort", x, REAL)
    dimensions = rank("argsort", x)
    place = one_axis("argsort", axis, dimensions)
    indices = order(axis_last(x, place, dimensions), descending)
    return axis_back(tf.cast(indices, tf.int64), place, dimensions)


def sort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The elements in order along an axis, NaN as the largest; always stable."""
    x = tensor("sort", x, REAL)
    dimensions = rank("sort", x)
    place = one_axis("sort", axis, dimensions)
    x = axis_last(x, place, dimensions)
    chosen = tf.gather(x, order(x, descending), batch_dims=dimensions - 1, axis=dimensions - 1)
    return axis_back(chosen, place, dimensions)


def _index_of(name: str, body: Any, x: Tensor, axis: int | None, keepdims: builtins.bool) -> Tensor:
    x = tensor(name, x, REAL)
    dimensions = rank(name, x)
    key = sort_key(x)
    if x.dtype in REAL_FLOATING.members and name == "argmin":
        key = tf.where(tf.math.is_nan(x), tf.constant(key.dtype.min, key.dtype), key)
    places = all_axes(name, axis, dimensions)
    if builtins.any(x.shape[place] == 0 for place in places):
        raise invalid(
            f"{name} of an empty axis is undefined", "search along an axis that is not empty"
        )
    if axis is None:
        result = body(tf.reshape(key, [-1]), axis=0)
        return tf.reshape(result, [1] * dimensions) if keepdims else result
    result = body(key, axis=places[0])
    return tf.expand_dims(result, places[0]) if keepdims else result


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the first largest element; NaN wins."""
    return _index_of("argmax", tf.argmax, x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The index of the first smallest element; NaN wins."""
    return _index_of("argmin", tf.argmin, x, axis, keepdims)


def searchsorted(
    x1: Tensor, x2: Tensor | Scalar, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """The indices at which elements of x2 keep x1 sorted; `sorter` sorts x1 first."""
    if side not in ("left", "right"):
        raise invalid(f"searchsorted was given side={side!r}", 'pass "left" or "right"')
    line, values = together("searchsorted", REAL, x1, x2)
    if rank("searchsorted", line) != 1:
        raise invalid("searchsorted takes an x1 of one dimension", "flatten it, and sort it")
    if sorter is not None:
        line = tf.gather(line, tensor("searchsorted", sorter, INTEGER))
    keys = tf.reshape(sort_key(values), [-1])
    found = tf.searchsorted(sort_key(line), keys, side=side, out_type=tf.int64)
    return tf.reshape(found, tf.shape(values))
