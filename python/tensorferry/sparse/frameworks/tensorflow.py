"""TensorFlow: `tf.sparse.SparseTensor`. Coordinates are int64, point by point."""

from typing import Any

import numpy as np

from tensorferry._native import to
from tensorferry.framework_register import load
from tensorferry.sparse.components import Parts


def read(x: Any) -> Parts:
    """Takes a tensor apart."""
    shape = tuple(to(x.dense_shape, "numpy").tolist())
    return Parts("coo", "coo", shape, x.values, (x.indices,), "points")


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Puts a tensor together."""
    # As a tensor: TensorFlow takes far longer to make one of a tuple.
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
