"""Tensors as sets: distinct elements in order, and membership.

Every NaN is distinct from every other, as the standard asks.
"""

from __future__ import annotations

import builtins
from typing import NamedTuple

from tensorferry.array_api.tensorflow.dtypes import ANY, COMPLEX
from tensorferry.array_api.tensorflow.ordering import order, sort_key
from tensorferry.array_api.tensorflow.tensors import Scalar, Tensor, sizes, tensor, tf, together


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def _order_of(x: Tensor) -> Tensor:
    if x.dtype not in COMPLEX.members:
        return order(x)
    by_imaginary = order(tf.math.imag(x))
    return tf.gather(by_imaginary, order(tf.gather(tf.math.real(x), by_imaginary)))


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct values, their first indices, the inverse indices, and the counts."""
    x = tensor("unique_all", x)
    line = tf.reshape(x, [-1])
    indices = _order_of(line)
    ordered = tf.gather(line, indices)
    length = tf.minimum(tf.size(line), 1)
    starts = tf.concat([tf.fill([length], True), tf.not_equal(ordered[1:], ordered[:-1])], axis=0)
    first = tf.cast(tf.reshape(tf.where(starts), [-1]), tf.int64)
    ends = tf.concat([first[1:], tf.fill([length], tf.size(line, tf.int64))], axis=0)
    group = tf.cumsum(tf.cast(starts, tf.int64)) - 1
    inverse = tf.scatter_nd(indices[:, None], group, [tf.size(line)])
    return UniqueAll(
        tf.gather(ordered, first),
        tf.cast(tf.gather(indices, first), tf.int64),
        tf.reshape(inverse, sizes(x)),
        ends - first,
    )


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct values, and their counts."""
    found = unique_all(tensor("unique_counts", x))
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct values, and the inverse indices."""
    found = unique_all(tensor("unique_inverse", x))
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct values."""
    return unique_all(tensor("unique_values", x)).values


def isin(x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, invert: builtins.bool = False) -> Tensor:
    """Which elements of x1 are in x2."""
    values, members = together("isin", ANY, x1, x2)
    members = tf.reshape(members, [-1])
    if values.dtype in COMPLEX.members:
        found = tf.reduce_any(tf.equal(values[..., None], members), axis=-1)
    else:
        line = tf.sort(sort_key(members))
        keys = sort_key(values)
        start, end = (
            tf.searchsorted(line, tf.reshape(keys, [-1]), side=side) for side in ("left", "right")
        )
        found = tf.reshape(end > start, tf.shape(values)) & tf.equal(values, values)
    return tf.logical_not(found) if invert else found
