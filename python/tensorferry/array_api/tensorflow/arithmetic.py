"""Elementwise arithmetic: sums to powers, division with its corner cases, rounding, parts, bits.

Integers wrap, as in NumPy. An integer divided by zero is zero, where TensorFlow would end the
whole call with an error, and the most negative integer divided by minus one is itself.

What only few values need costs many times what TensorFlow's own function does, so it is done where
there are such values, and `if_any` looks for them.
"""

from __future__ import annotations

import functools

from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.dtypes import (
    BITS,
    COMPLEX,
    FLOATING,
    INTEGER,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    UNSIGNED,
)
from tensorferry.array_api.tensorflow.elementwise import binary, unary
from tensorferry.array_api.tensorflow.tensors import (
    DType,
    Scalar,
    Tensor,
    cast,
    if_any,
    tensor,
    tf,
    where_any,
)


def zeros(x: Tensor) -> Tensor:
    """Zeros like a tensor."""
    return tf.zeros_like(x)


def negative_sign(x: Tensor) -> Tensor:
    """Whether the sign bit of a float is set: of -0.0 and of some NaNs too."""
    twin = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
    return tf.bitcast(x, twin) < 0


def with_sign(x: Tensor, like: Tensor) -> Tensor:
    """The magnitude of one float with the sign of another."""
    one = tf.ones([], x.dtype)
    return tf.abs(x) * tf.where(negative_sign(like), -one, one)


def _divided(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A divisor of integers that cannot trap, and masks of the divisors 0 and -1."""
    nothing = tf.equal(y, 0)
    if x.dtype in UNSIGNED:
        opposite = tf.zeros_like(nothing)
    else:
        opposite = tf.equal(y, -1)
    return tf.where(nothing | opposite, tf.ones_like(y), y), nothing, opposite


def _traps(x: Tensor, y: Tensor) -> Tensor:
    """Which divisors of integers need special handling."""
    return tf.equal(y, 0) if x.dtype in UNSIGNED else tf.equal(y, 0) | tf.equal(y, -1)


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype in INTEGER.members:
        return if_any(_traps(x, y), lambda: _divide_integers(x, y), lambda: tf.math.floordiv(x, y))
    if x.dtype == tf.float64:
        quotient = x / y
        near = tf.math.floor(quotient)
        # Rounding never passes an integer. So the floor is right unless the quotient is one itself:
        # the next one above the true quotient, zero of an infinite divisor, or infinite.
        return where_any(tf.equal(quotient, near), _divide_floats, near, x, y)
    # In a type that has more than twice the digits, no quotient below an integer rounds to it.
    exact = tf.cast(tf.math.floor(tf.cast(x, tf.float64) / tf.cast(y, tf.float64)), x.dtype)
    endless = tf.math.is_inf(x) | tf.math.is_inf(y)
    return if_any(endless, lambda: cast(_divide_floats(*_single(x, y)), x.dtype), lambda: exact)


def _single(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Floats of 32 bits at least, in which TensorFlow has remainders."""
    return (cast(x, tf.float32), cast(y, tf.float32))


def _divide_integers(x: Tensor, y: Tensor) -> Tensor:
    divisor, nothing, opposite = _divided(x, y)
    quotient = tf.math.floordiv(x, divisor)
    if x.dtype not in UNSIGNED:
        quotient = tf.where(opposite, -x, quotient)
    return tf.where(nothing, tf.zeros_like(quotient), quotient)


def _divide_floats(x: Tensor, y: Tensor) -> Tensor:
    # From the remainder, which is exact: the floor of a rounded quotient can be one too high.
    rest = tf.math.floormod(x, y)
    quotient = (x - rest) / y
    near = tf.math.floor(quotient)
    near = tf.where(quotient - near > 0.5, near + 1, near)
    near = tf.where(tf.equal(quotient, 0), with_sign(quotient, x / y), near)
    # The remainder of an infinite divisor may be infinite itself, and says nothing.
    endless = tf.math.is_inf(y) & tf.math.is_finite(x)
    apart = tf.sign(x) * tf.sign(y) < 0
    near = tf.where(endless, tf.where(apart, -tf.ones_like(near), x / y), near)
    return tf.where(tf.equal(y, 0), x / y, near)


def _remainder(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype in INTEGER.members:
        return if_any(_traps(x, y), lambda: _rest(x, y), lambda: tf.math.floormod(x, y))
    rest = tf.math.floormod(x, y)
    return tf.where(tf.equal(rest, 0), with_sign(tf.zeros_like(rest), y + rest), rest)


def _rest(x: Tensor, y: Tensor) -> Tensor:
    divisor, nothing, opposite = _divided(x, y)
    rest = tf.math.floormod(x, divisor)
    return tf.where(nothing | opposite, tf.zeros_like(rest), rest)


def _power(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype not in UNSIGNED:
        return tf.pow(x, y)
    # In the wider signed type, where the low bits come out the same.
    return tf.cast(tf.pow(tf.cast(x, tf.int64), tf.cast(y, tf.int64)), x.dtype)


def _bitwise(x: Tensor, y: Tensor, of_bools: str, of_integers: str) -> Tensor:
    if x.dtype == tf.bool:
        return getattr(tf.math, of_bools)(x, y)
    return getattr(tf.bitwise, of_integers)(x, y)


def _shift_left(x: Tensor, y: Tensor) -> Tensor:
    shifted, beyond = tf.bitwise.left_shift(x, y), y >= dtypes.bits(x.dtype)
    return if_any(
        beyond, lambda: tf.where(beyond, tf.zeros_like(shifted), shifted), lambda: shifted
    )


def _shift_right(x: Tensor, y: Tensor) -> Tensor:
    shifted, beyond = tf.bitwise.right_shift(x, y), y >= dtypes.bits(x.dtype)

    def without() -> Tensor:
        gone = tf.where(x < 0, -tf.ones_like(x), zeros(x)) if x.dtype not in UNSIGNED else zeros(x)
        return tf.where(beyond, gone, shifted)

    return if_any(beyond, without, lambda: shifted)


def _negative(x: Tensor) -> Tensor:
    return zeros(x) - x if x.dtype in UNSIGNED else -x


def _sign(x: Tensor) -> Tensor:
    if x.dtype in UNSIGNED:
        return cast(x > 0, x.dtype)
    signs = tf.sign(x)
    if x.dtype not in REAL_FLOATING.members:
        return signs
    unknown = tf.math.is_nan(x)
    return if_any(unknown, lambda: tf.where(unknown, x, signs), lambda: signs)


def _round(x: Tensor) -> Tensor:
    if x.dtype in COMPLEX.members:
        return tf.complex(tf.round(tf.math.real(x)), tf.round(tf.math.imag(x)))
    return x if x.dtype in INTEGER.members else tf.round(x)


def _hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    squares = x * x + y * y
    # Squares that have overflowed or lost digits, and NaN.
    plain = (squares >= _least(x.dtype)) & (squares <= x.dtype.max)
    return if_any(~plain, lambda: _scaled_hypotenuse(x, y), lambda: tf.sqrt(squares))


@functools.cache
def _least(dtype: DType) -> float:
    """Above this, a square has all the digits of its type, and its root too."""
    tiny: float = dtypes.finfo(dtype).smallest_normal
    return tiny / float(dtypes.finfo(dtype).eps)


def _scaled_hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    x, y = tf.abs(x), tf.abs(y)
    large, small = tf.maximum(x, y), tf.minimum(x, y)
    ratio = tf.math.divide_no_nan(small, large)
    length = large * tf.sqrt(1 + ratio * ratio)
    endless = tf.math.is_inf(x) | tf.math.is_inf(y)
    return tf.where(endless, tf.constant(float("inf"), x.dtype), length)


def _invert(x: Tensor) -> Tensor:
    return tf.logical_not(x) if x.dtype == tf.bool else tf.bitwise.invert(x)


add = binary("add", NUMERIC, lambda x, y: x + y, "The sum.")
subtract = binary("subtract", NUMERIC, lambda x, y: x - y, "The difference.")
multiply = binary("multiply", NUMERIC, lambda x, y: x * y, "The product.")
divide = binary("divide", FLOATING, lambda x, y: x / y, "The quotient of floating-point tensors.")
floor_divide = binary("floor_divide", REAL, _floor_divide, "The quotient, rounded down.")
remainder = binary("remainder", REAL, _remainder, "What is left, with the sign of the divisor.")
pow = binary("pow", NUMERIC, _power, "The power; integers take no negative exponents.")
maximum = binary("maximum", REAL, lambda x, y: tf.maximum(x, y), "The larger; NaN wins.")
minimum = binary("minimum", REAL, lambda x, y: tf.minimum(x, y), "The smaller; NaN wins.")
hypot = binary("hypot", REAL_FLOATING, _hypotenuse, "sqrt(x1**2 + x2**2), without overflow.")
copysign = binary("copysign", REAL_FLOATING, with_sign, "The magnitude of x1, the sign of x2.")
nextafter = binary(
    "nextafter",
    dtypes.Kind("float32 and float64", frozenset({tf.float32, tf.float64})),
    lambda x, y: tf.math.nextafter(x, y),
    "The float after x1 on the way to x2.",
)

abs = unary(
    "abs",
    NUMERIC,
    lambda x: x if x.dtype in UNSIGNED else tf.abs(x),
    "The magnitude; of complex tensors it is real.",
)
negative = unary("negative", NUMERIC, _negative, "Minus x; unsigned integers wrap.")
positive = unary("positive", NUMERIC, lambda x: x, "The tensor itself.")
sign = unary("sign", NUMERIC, _sign, "-1, 0 or 1; of complex tensors x / abs(x).")
square = unary("square", NUMERIC, lambda x: x * x, "The square.")
reciprocal = unary("reciprocal", FLOATING, lambda x: 1 / x, "One divided by x.")
signbit = unary("signbit", REAL_FLOATING, negative_sign, "Whether the sign bit is set.")


floor = unary(
    "floor", REAL, lambda x: x if x.dtype in INTEGER.members else tf.floor(x), "Rounded down."
)
ceil = unary(
    "ceil", REAL, lambda x: x if x.dtype in INTEGER.members else tf.math.ceil(x), "Rounded up."
)
trunc = unary(
    "trunc",
    REAL,
    lambda x: x if x.dtype in INTEGER.members else with_sign(tf.floor(tf.abs(x)), x),
    "Rounded towards zero.",
)
round = unary("round", NUMERIC, _round, "Rounded to the nearest integer, halves to even.")

conj = unary("conj", NUMERIC, lambda x: tf.math.conj(x), "The complex conjugate.")
real = unary("real", NUMERIC, lambda x: tf.math.real(x), "The real part.")
imag = unary("imag", COMPLEX, lambda x: tf.math.imag(x), "The imaginary part.")

bitwise_and = binary(
    "bitwise_and", BITS, lambda x, y: _bitwise(x, y, "logical_and", "bitwise_and"), "x1 & x2."
)
bitwise_or = binary(
    "bitwise_or", BITS, lambda x, y: _bitwise(x, y, "logical_or", "bitwise_or"), "x1 | x2."
)
bitwise_xor = binary(
    "bitwise_xor", BITS, lambda x, y: _bitwise(x, y, "logical_xor", "bitwise_xor"), "x1 ^ x2."
)
bitwise_invert = unary("bitwise_invert", BITS, _invert, "~x.")
bitwise_left_shift = binary(
    "bitwise_left_shift", INTEGER, _shift_left, "x1 << x2; zero from the width of the type on."
)
bitwise_right_shift = binary(
    "bitwise_right_shift", INTEGER, _shift_right, "x1 >> x2, keeping the sign."
)


def clip(
    x: Tensor, /, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None
) -> Tensor:
    """The values clipped to two optional bounds; x keeps its type."""
    x = result = tensor("clip", x, REAL)
    for bound, choose in ((min, maximum), (max, minimum)):
        if bound is not None:
            result = choose(result, bound)
    return cast(result, x.dtype)
