"""Elementwise comparisons, logic, and predicates such as `isnan`; they return bool tensors."""

from __future__ import annotations

from collections.abc import Callable

from tensorferry.array_api.tensorflow.dtypes import ANY, BOOLEAN, COMPLEX, INTEGER, NUMERIC, REAL
from tensorferry.array_api.tensorflow.elementwise import binary, unary
from tensorferry.array_api.tensorflow.tensors import Tensor, tf


def _componentwise(x: Tensor, of_float: Callable[[Tensor], Tensor], otherwise: bool) -> Tensor:
    """A predicate of floats; constant for integers, and combined from the parts of complex."""
    if x.dtype in INTEGER.members:
        return tf.ones_like(x, tf.bool) if otherwise else tf.zeros_like(x, tf.bool)
    if x.dtype not in COMPLEX.members:
        return of_float(x)
    first, second = of_float(tf.math.real(x)), of_float(tf.math.imag(x))
    return first & second if otherwise else first | second


equal = binary("equal", ANY, lambda x, y: tf.equal(x, y), "x1 == x2.")
not_equal = binary("not_equal", ANY, lambda x, y: tf.not_equal(x, y), "x1 != x2.")
less = binary("less", REAL, lambda x, y: tf.less(x, y), "x1 < x2.")
less_equal = binary("less_equal", REAL, lambda x, y: tf.less_equal(x, y), "x1 <= x2.")
greater = binary("greater", REAL, lambda x, y: tf.greater(x, y), "x1 > x2.")
greater_equal = binary("greater_equal", REAL, lambda x, y: tf.greater_equal(x, y), "x1 >= x2.")

logical_and = binary("logical_and", BOOLEAN, lambda x, y: x & y, "Both.")
logical_or = binary("logical_or", BOOLEAN, lambda x, y: x | y, "One or both.")
logical_xor = binary("logical_xor", BOOLEAN, lambda x, y: x ^ y, "One and not both.")
logical_not = unary("logical_not", BOOLEAN, lambda x: tf.logical_not(x), "Not.")

isnan = unary(
    "isnan", NUMERIC, lambda x: _componentwise(x, tf.math.is_nan, False), "Whether it is NaN."
)
isinf = unary(
    "isinf", NUMERIC, lambda x: _componentwise(x, tf.math.is_inf, False), "Whether it is infinite."
)
isfinite = unary(
    "isfinite",
    NUMERIC,
    lambda x: _componentwise(x, tf.math.is_finite, True),
    "Whether it is neither infinite nor NaN.",
)
