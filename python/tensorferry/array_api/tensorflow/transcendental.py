"""Elementwise exponentials, logarithms, trigonometry and roots, of floating-point tensors."""

from __future__ import annotations

import functools
import math

from tensorferry.array_api.tensorflow.dtypes import COMPLEX, FLOATING, REAL_FLOATING, finfo
from tensorferry.array_api.tensorflow.elementwise import Unary, binary, unary
from tensorferry.array_api.tensorflow.tensors import DType, Tensor, tf


def _direct(name: str, document: str) -> Unary:
    """A function that TensorFlow has by the same name, for all floating-point types."""
    return unary(name, FLOATING, getattr(tf.math, name), document)


@functools.cache
def _rounding(dtype: DType) -> float:
    """How far a quotient of two rounded logarithms is off, in proportion."""
    return 4 * float(finfo(dtype).eps)


def _logarithm(x: Tensor, base: int) -> Tensor:
    """The logarithm to a base, exact where x is a power of it."""
    result = tf.math.log(x) * tf.constant(1 / math.log(base), x.dtype)
    if x.dtype in COMPLEX.members:
        return result
    # As far from an integer as rounding goes is an integer. Not of zero, near which there are small
    # results: the logarithm of 1 is exact.
    near = tf.round(result)
    gap = near - result
    close = tf.abs(gap) <= tf.abs(near) * _rounding(x.dtype)
    # The correction is not differentiated, so that the gradient stays that of the logarithm.
    return result + tf.stop_gradient(tf.where(close, gap, tf.zeros_like(gap)))


def _log_of_sum(x: Tensor, y: Tensor) -> Tensor:
    large = tf.maximum(x, y)
    gap = tf.abs(x - y)
    # Infinities of one sign have no difference, and are their own result.
    return tf.where(tf.equal(x, y), x + math.log(2), large + tf.math.log1p(tf.exp(-gap)))


exp = _direct("exp", "e to the power of x.")
expm1 = _direct("expm1", "exp(x) - 1, exact near zero.")
log = _direct("log", "The natural logarithm.")
log1p = _direct("log1p", "log(1 + x), exact near zero.")
log2 = unary("log2", FLOATING, lambda x: _logarithm(x, 2), "The logarithm to base 2.")
log10 = unary("log10", FLOATING, lambda x: _logarithm(x, 10), "The logarithm to base 10.")
logaddexp = binary("logaddexp", REAL_FLOATING, _log_of_sum, "log(exp(x1) + exp(x2)).")
sqrt = _direct("sqrt", "The square root.")

sin = _direct("sin", "The sine.")
cos = _direct("cos", "The cosine.")
tan = _direct("tan", "The tangent.")
asin = _direct("asin", "The inverse sine.")
acos = _direct("acos", "The inverse cosine.")
atan = _direct("atan", "The inverse tangent.")
atan2 = binary(
    "atan2", REAL_FLOATING, lambda x, y: tf.math.atan2(x, y), "The angle of the point (x2, x1)."
)
sinh = _direct("sinh", "The hyperbolic sine.")
cosh = _direct("cosh", "The hyperbolic cosine.")
tanh = _direct("tanh", "The hyperbolic tangent.")
asinh = _direct("asinh", "The inverse hyperbolic sine.")
acosh = _direct("acosh", "The inverse hyperbolic cosine.")
atanh = _direct("atanh", "The inverse hyperbolic tangent.")
