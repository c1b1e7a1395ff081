"""TensorFlow: `tf.sparse.SparseTensor`.

Coordinates are int64, point by point, in order and without repeats: its operations count on that
and check it seldom.
"""

from typing import Any

from tensorferry.sparse.bundle import Bundle, Rules
from tensorferry.sparse.frameworks import library

ARRAYS = "tensorflow"
TITLE = "TensorFlow"


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    why = "TensorFlow's operations count on each place once, in order"
    return {"coo": Rules(("int64",), laid="points", in_order=True, unique=True, why=why)}


def read(x: Any) -> Bundle:
    """Takes a tensor apart."""
    from tensorferry._native import to

    shape = tuple(map(int, to(x.dense_shape, "numpy")))
    return Bundle("tensorflow", "coo", shape, x.values, (x.indices,), "points", name="coo")


def write(bundle: Bundle) -> Any:
    """Puts a tensor together."""
    tf = library("tensorflow", "tensorflow")
    return tf.sparse.SparseTensor(bundle.coordinates[0], bundle.values, bundle.shape)


def scatter(bundle: Bundle) -> Any:
    """A dense tensor, on the device of the parts."""
    tf = library("tensorflow", "tensorflow")
    values, places = bundle.values, bundle.coordinates[0]
    with tf.device(values.device):
        shape = tf.constant(bundle.shape, tf.int64)
        if values.dtype != tf.bool:
            return tf.scatter_nd(places, values, shape)
        return tf.scatter_nd(places, tf.cast(values, tf.int32), shape) > 0
