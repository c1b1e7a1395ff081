"""Reductions over axes, and sums, products and differences along one."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.dtypes import (
    FLOATING,
    INTEGER,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    UNSIGNED,
)
from tensorferry.array_api.tensorflow.tensors import (
    Axis,
    DType,
    Tensor,
    all_axes,
    cast,
    count,
    invalid,
    one_axis,
    rank,
    sizes,
    tensor,
    tf,
    widened,
)


def _summed_type(x: Tensor, dtype: DType | None) -> DType:
    """The type of a sum: narrow integers and bools are summed in the widest type."""
    if dtype is not None:
        return dtypes.resolve(dtype)
    if x.dtype in UNSIGNED:
        return tf.uint64
    if x.dtype in INTEGER.members or x.dtype == tf.bool:
        return dtypes.DEFAULT_INTEGER
    return x.dtype


def _reduce(
    name: str, body: Callable[..., Any], x: Tensor, axis: Axis, keepdims: builtins.bool
) -> Tensor:
    places = None if axis is None else all_axes(name, axis, rank(name, x))
    return body(x, axis=places, keepdims=keepdims)


def sum(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """The sum; bool tensors, beyond the standard, are counted."""
    x = tensor("sum", x)
    return _reduce("sum", tf.reduce_sum, cast(x, _summed_type(x, dtype)), axis, keepdims)


def prod(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """The product."""
    x = tensor("prod", x, NUMERIC)
    return _reduce("prod", tf.reduce_prod, cast(x, _summed_type(x, dtype)), axis, keepdims)


def _extreme(
    name: str, body: Callable[..., Any], x: Tensor, axis: Axis, keepdims: builtins.bool
) -> Tensor:
    x = tensor(name, x, REAL)
    known = x.shape.as_list() if x.shape.rank is not None else []
    if builtins.any(known[place] == 0 for place in all_axes(name, axis, len(known))):
        raise invalid(
            f"{name} of an empty axis is undefined", "reduce over axes that are not empty"
        )
    return _reduce(name, body, x, axis, keepdims)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest value; NaN wins."""
    return _extreme("max", tf.reduce_max, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest value; NaN wins."""
    return _extreme("min", tf.reduce_min, x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The arithmetic mean."""
    x = tensor("mean", x, FLOATING)
    return cast(_reduce("mean", tf.reduce_mean, widened(x), axis, keepdims), x.dtype)


def _variance(
    name: str, x: Tensor, axis: Axis, correction: float, keepdims: builtins.bool
) -> Tensor:
    """The variance; of 16-bit floats in float32."""
    x = widened(tensor(name, x, REAL_FLOATING))
    places = all_axes(name, axis, rank(name, x))
    distance = x - tf.reduce_mean(x, axis=places, keepdims=True)
    total = tf.reduce_sum(distance * distance, axis=places, keepdims=keepdims)
    shape = sizes(x)
    divisor = tf.cast(count([shape[place] for place in places]), x.dtype) - correction
    return total / tf.maximum(divisor, 0)


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The variance, divided by the count less the correction."""
    return cast(_variance("var", x, axis, correction, keepdims), x.dtype)


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The standard deviation."""
    return cast(tf.sqrt(_variance("std", x, axis, correction, keepdims)), x.dtype)


def truth(x: Tensor) -> Tensor:
    """Whether each element is not zero."""
    return x if x.dtype == tf.bool else tf.not_equal(x, tf.zeros([], x.dtype))


def all(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether no element is zero."""
    return _reduce("all", tf.reduce_all, truth(tensor("all", x)), axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether an element is not zero."""
    return _reduce("any", tf.reduce_any, truth(tensor("any", x)), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: builtins.bool = False) -> Tensor:
    """The number of nonzero elements."""
    flags = tf.cast(truth(tensor("count_nonzero", x)), dtypes.DEFAULT_INTEGER)
    return _reduce("count_nonzero", tf.reduce_sum, flags, axis, keepdims)


def _cumulative(
    name: str,
    body: Callable[..., Any],
    x: Tensor,
    axis: int | None,
    dtype: DType | None,
    start: int | None,
) -> Tensor:
    x = tensor(name, x, NUMERIC)
    dimensions = rank(name, x)
    if axis is None and dimensions != 1:
        raise invalid(f"{name} needs an axis for a tensor of {dimensions} dimensions", "pass axis=")
    place = one_axis(name, 0 if axis is None else axis, dimensions)
    x = cast(x, _summed_type(x, dtype))
    result = cast(body(widened(x), axis=place), x.dtype)
    if start is None:
        return result
    shape = sizes(x)
    shape[place] = 1
    return tf.concat([tf.fill(shape, tf.constant(start, x.dtype)), result], place)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The cumulative sums; include_initial puts a zero first."""
    start = 0 if include_initial else None
    return _cumulative("cumulative_sum", tf.cumsum, x, axis, dtype, start)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """The cumulative products; include_initial puts a one first."""
    start = 1 if include_initial else None
    return _cumulative("cumulative_prod", tf.math.cumprod, x, axis, dtype, start)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of neighbours along an axis, taken n times."""
    x = tensor("diff", x, NUMERIC)
    place = one_axis("diff", axis, rank("diff", x))
    parts = [
        cast(tensor("diff", part, NUMERIC), x.dtype)
        for part in (prepend, x, append)
        if part is not None
    ]
    x = tf.concat(parts, place) if len(parts) > 1 else x
    before = (slice(None),) * place
    for _ in range(n):
        x = x[(*before, slice(1, None))] - x[(*before, slice(None, -1))]
    return x
