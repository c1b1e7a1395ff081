"""TensorFlow: `tf.sparse.SparseTensor`. Coordinates are int64, with a row for each element."""

from typing import Any

import numpy as np

from tensorferry._native import to
from tensorferry.framework_register import load
from tensorferry.sparse.components import SparseComponents


def read(x: Any) -> SparseComponents:
    """Returns the components of a tensor."""
    shape = tuple(to(x.dense_shape, "numpy").tolist())
    return SparseComponents("coo", "coo", shape, x.values, (x.indices,), "points")


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Makes a tensor from its components."""
    # A tensor, because TensorFlow takes much longer to convert a tuple.
    lengths = to(np.array(shape, np.int64), "tensorflow", device="cpu")
    return load("tensorflow").sparse.SparseTensor(arrays[0], values, lengths)


def scatter(
    shape: tuple[int, ...], values: Any, coordinates: tuple[Any, ...], is_unique: bool
) -> Any:
    """A dense tensor, on the device of the values."""
    tf = load("tensorflow")
    (points,) = coordinates
    with tf.device(values.device):
        lengths = tf.constant(shape, tf.int64)
        if values.dtype != tf.bool:
            return tf.scatter_nd(points, values, lengths)
        return tf.scatter_nd(points, tf.cast(values, tf.int32), lengths) > 0
