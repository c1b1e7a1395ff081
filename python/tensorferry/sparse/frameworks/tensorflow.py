"""TensorFlow: `tf.sparse.SparseTensor`.

Coordinates are int64, point by point, in order and without repeats: its operations count on that
and check it seldom.
"""

from typing import Any

import numpy as np

from tensorferry._native import to
from tensorferry.framework_register import load, title
from tensorferry.sparse.bundle import Bundle, Rules

ARRAYS = "tensorflow"
TITLE = title("tensorflow")


_WHY = "TensorFlow's operations count on each place once, in order"
_FORMATS = {"coo": Rules(("int64",), laid="points", in_order=True, unique=True, why=_WHY)}


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    return _FORMATS


def read(x: Any) -> Bundle:
    """Takes a tensor apart."""
    values, parts, laid, shape = _open(x)
    return Bundle("tensorflow", "coo", shape, values, parts, laid, name="coo")


def _open(x: Any) -> Any:
    return x.values, (x.indices,), "points", tuple(to(x.dense_shape, "numpy").tolist())


OPENS = {"SparseTensor": ("coo", _open)}


def write(bundle: Bundle) -> Any:
    """Puts a tensor together."""
    return _coo(bundle.values, bundle.coordinates, bundle.shape, 0)


def _coo(values: Any, parts: tuple[Any, ...], shape: tuple[int, ...], bits: int) -> Any:
    tf = load("tensorflow")
    # As a tensor: TensorFlow takes far longer to make one of a tuple.
    lengths = to(np.array(shape, np.int64), "tensorflow", device="cpu")
    return tf.sparse.SparseTensor(parts[0], values, lengths)


WRITES = {"coo": _coo}


def scatter(bundle: Bundle) -> Any:
    """A dense tensor, on the device of the parts."""
    tf = load("tensorflow")
    values, places = bundle.values, bundle.coordinates[0]
    with tf.device(values.device):
        shape = tf.constant(bundle.shape, tf.int64)
        if values.dtype != tf.bool:
            return tf.scatter_nd(places, values, shape)
        return tf.scatter_nd(places, tf.cast(values, tf.int32), shape) > 0
