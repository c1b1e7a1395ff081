"""Casts in exact arithmetic: slow, short, and written from the documented table alone.

Every element is decoded to a `Number`: a fraction with a sign of its own (zeros have signs too),
an infinity or a NaN. A cast decodes, rounds once, and encodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from support.dtypes import NAMED, DType, significant


@dataclass(frozen=True)
class Format:
    """A floating point format: sign, exponent and mantissa from the top."""

    exponent: int
    mantissa: int
    bias: int
    style: str
    """"ieee": infinities and NaNs in the last exponent; "fn": NaN in the last code only; "fnuz":
    the NaN is minus zero; "finite": neither; "powers": no sign and no mantissa."""

    @property
    def bits(self) -> int:
        return self.exponent + self.mantissa + (self.style != "powers")

    @property
    def sign_bit(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def largest(self) -> int:
        """The code of the largest finite value."""
        last = self.sign_bit - 1
        if self.style == "ieee":
            return last - (1 << self.mantissa)
        return last - (self.style in ("fn", "powers"))


FORMATS = {
    "float16": Format(5, 10, 15, "ieee"),
    "bfloat16": Format(8, 7, 127, "ieee"),
    "float32": Format(8, 23, 127, "ieee"),
    "float64": Format(11, 52, 1023, "ieee"),
    "float8_e3m4": Format(3, 4, 3, "ieee"),
    "float8_e4m3": Format(4, 3, 7, "ieee"),
    "float8_e5m2": Format(5, 2, 15, "ieee"),
    "float8_e4m3fn": Format(4, 3, 7, "fn"),
    "float8_e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "float8_e4m3b11fnuz": Format(4, 3, 11, "fnuz"),
    "float8_e5m2fnuz": Format(5, 2, 16, "fnuz"),
    "float8_e8m0fnu": Format(8, 0, 127, "powers"),
    "float6_e2m3fn": Format(2, 3, 1, "finite"),
    "float6_e3m2fn": Format(3, 2, 3, "finite"),
    "float4_e2m1fn": Format(2, 1, 1, "finite"),
}


@dataclass(frozen=True)
class Number:
    """A decoded element."""

    kind: str
    """"finite", "infinite" or "nan"."""
    negative: bool = False
    magnitude: Fraction = Fraction(0)
    payload: Fraction = Fraction(0)
    """What a NaN has below its quiet bit, as a fraction of the mantissa's range."""

    @property
    def value(self) -> Fraction:
        return -self.magnitude if self.negative else self.magnitude


def power(exponent: int) -> Fraction:
    """Two to a power."""
    return Fraction(2) ** exponent


def decode_float(form: Format, code: int) -> Number:
    """The number behind a code."""
    code &= (1 << form.bits) - 1
    if form.style == "powers":
        return Number("nan") if code == 0xFF else Number("finite", False, power(code - form.bias))
    negative, code = bool(code & form.sign_bit), code & (form.sign_bit - 1)
    if form.style == "fnuz" and negative and code == 0:
        return Number("nan")
    if code > form.largest:
        if form.style == "ieee" and code == form.largest + 1:
            return Number("infinite", negative)
        if form.bits > 8:
            below_quiet = code & ((1 << (form.mantissa - 1)) - 1)
            return Number("nan", negative, payload=Fraction(below_quiet, 1 << (form.mantissa - 1)))
        return Number("nan", negative)
    exponent, fraction = code >> form.mantissa, code & ((1 << form.mantissa) - 1)
    if exponent == 0:
        return Number("finite", negative, fraction * power(1 - form.bias - form.mantissa))
    whole = fraction + (1 << form.mantissa)
    return Number("finite", negative, whole * power(exponent - form.bias - form.mantissa))


def encode_float(form: Format, number: Number) -> int:
    """The code of the nearest value, ties to even, with the ends as the table says."""
    sign = form.sign_bit if number.negative else 0
    if form.style == "powers":
        return _encode_power(form, number)
    if number.kind == "nan":
        return _encode_nan(form, number, sign)
    code = form.largest + 1 if number.kind == "infinite" else _round(form, number.magnitude)
    if code > form.largest:
        if form.style == "finite":
            return form.largest | sign
        if form.style == "fnuz":
            return form.sign_bit
        return (form.largest + 1) | sign
    if form.style == "fnuz" and code == 0:
        return 0
    return code | sign


def _round(form: Format, magnitude: Fraction) -> int:
    """A code that may lie past the largest."""
    if magnitude == 0:
        return 0
    exponent = max(floor_log2(magnitude), 1 - form.bias)
    steps = round(
        magnitude / power(exponent - form.mantissa)
    )  # Python rounds fractions half to even.
    # A carry out of the mantissa is the next exponent's first code; a subnormal has exponent field
    # zero.
    return steps + ((exponent - (1 - form.bias)) << form.mantissa)


def _encode_nan(form: Format, number: Number, sign: int) -> int:
    if form.style == "finite":
        return form.sign_bit ^ sign
    if form.style == "fnuz":
        return form.sign_bit
    if form.style == "fn":
        return (form.largest + 1) | sign
    quiet = 1 << (form.mantissa - 1)
    payload = int(number.payload * quiet) if form.bits > 8 else 0
    return (form.largest + 1) | quiet | payload | sign


def _encode_power(form: Format, number: Number) -> int:
    if number.kind != "finite" or number.value <= 0:
        return 0xFF
    exponent = floor_log2(number.magnitude)
    if number.magnitude >= power(exponent) * Fraction(3, 2):
        exponent += 1
    code = max(0, exponent + form.bias)
    return min(code, 0xFF)


def floor_log2(value: Fraction) -> int:
    """The exponent of the largest power of two that is no larger."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if power(guess) <= value else guess - 1


# ----- elements of any type


def component_of(dtype: DType) -> DType:
    """The type of each part of a complex number; of others, the type itself."""
    return {"complex64": NAMED["float32"], "complex128": NAMED["float64"]}.get(dtype.name, dtype)


def decode(dtype: DType, code: int) -> Number:
    """The number behind the code of a real element."""
    if dtype.kind == "bool":
        return Number("finite", False, Fraction(int(code != 0)))
    if dtype.kind == "float":
        return decode_float(FORMATS[dtype.name], code)
    code &= (1 << dtype.bits) - 1
    if dtype.kind == "signed" and code >> (dtype.bits - 1):
        code -= 1 << dtype.bits
    return Number("finite", code < 0, Fraction(abs(code)))


def encode(source: DType, dtype: DType, number: Number) -> int:
    """The code of a real element that came from a `source`."""
    if dtype.kind == "bool":
        return int(number.kind != "finite" or number.magnitude != 0)
    if dtype.kind == "float":
        return encode_float(FORMATS[dtype.name], number)
    mask = (1 << dtype.bits) - 1
    if source.kind in ("bool", "signed", "unsigned"):
        return int(number.value) & mask
    low, high = (-(1 << (dtype.bits - 1)), mask >> 1) if dtype.kind == "signed" else (0, mask)
    if number.kind == "nan":
        return 0
    if number.kind == "infinite":
        return (low if number.negative else high) & mask
    # int() of a fraction cuts toward zero.
    return max(low, min(high, int(number.value))) & mask


@cache
def cast_code(source: DType, target: DType, code: int) -> int:
    """The code that a code becomes, for real types."""
    return encode(source, target, decode(source, code))


def cast(source: DType, target: DType, raw: np.ndarray) -> bytes:
    """The bytes that the bytes of elements become. Narrow elements have their high bits clear."""
    if source == target:
        return significant(target, raw.tobytes())
    from_part, to_part = component_of(source), component_of(target)
    codes = [int(code) for code in raw.view(f"u{from_part.size}")]
    if source.kind != "complex":
        real, imaginary = codes, None
    else:
        real, imaginary = codes[::2], codes[1::2]

    def one(code: int) -> int:
        return code if from_part == to_part else cast_code(from_part, to_part, code)

    if target.kind == "bool":
        parts = zip(real, imaginary or real, strict=True)
        made = [one(re) | one(im) for re, im in parts]
    elif target.kind == "complex":
        parts = zip(real, imaginary or [None] * len(real), strict=True)
        made = [code for re, im in parts for code in (one(re), 0 if im is None else one(im))]
    else:
        made = [one(code) for code in real]
    return np.array(made, f"u{to_part.size}").tobytes()


# ----- values that are worth trying


def codes_worth_trying(dtype: DType) -> list[int]:
    """Every code of a small type; of a large one, its ends and specials, what lies at, beside
    and between the values of every other type, and some at random."""
    dtype = component_of(dtype)
    if dtype.size == 1:
        return list(range(1 << dtype.bits))
    random = np.random.default_rng(dtype.bits)
    bits = (
        [
            int(code)
            for code in random.integers(0, 1 << dtype.bits, 60, dtype=np.uint64, endpoint=False)
        ]
        if (dtype.bits < 64)
        else [int(code) for code in random.integers(0, 2**64 - 1, 60, dtype=np.uint64)]
    )
    codes = {*bits, *_bounds(dtype)}
    for value in _landmarks():
        codes.update(_around(dtype, value))
    return sorted(codes)


def _bounds(dtype: DType) -> Iterator[int]:
    top = 1 << (dtype.bits - 1)
    for code in (0, 1, 2, top - 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1):
        yield code
    if dtype.kind == "float":
        form = FORMATS[dtype.name]
        first_normal, infinity, quiet = (
            1 << form.mantissa,
            form.largest + 1,
            1 << (form.mantissa - 1),
        )
        nans = (infinity | 1, infinity | quiet, infinity | quiet | 5, infinity | quiet // 2 | 1)
        for code in (first_normal - 1, first_normal, form.largest, infinity, *nans):
            yield code
            yield code | form.sign_bit


@cache
def _landmarks() -> tuple[Fraction, ...]:
    """Values at which some type changes its mind: ends of ranges, and middles between
    neighbours."""
    found = {Fraction(0), Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(5, 2)}
    for bits in (4, 8, 16, 32, 64):
        for whole in (1 << bits, 1 << (bits - 1)):
            found.update((Fraction(whole), whole - Fraction(1, 2), Fraction(whole - 1)))
    for form in FORMATS.values():
        near = 1 << max(0, form.mantissa - 3)
        last = form.largest
        sampled = {
            0,
            1,
            2,
            3,
            (1 << form.mantissa) - 1,
            1 << form.mantissa,
            last - 2 * near,
            last - 1,
            last,
        }
        if form.bits <= 8:
            sampled = set(range(last + 1))
        for code in sorted(code for code in sampled if 0 <= code <= last):
            here = decode_float(form, code).magnitude
            step = (
                power(floor_log2(here) - form.mantissa)
                if code == last
                else (decode_float(form, code + 1).magnitude - here)
            )
            found.update((here, here + step / 2))
    return tuple(sorted(found))


def _around(dtype: DType, value: Fraction) -> Iterator[int]:
    """The codes nearest to a value and its neighbours, of both signs."""
    for signed in (value, -value):
        if dtype.kind == "float":
            code = encode_float(FORMATS[dtype.name], Number("finite", signed < 0, abs(signed)))
            for beside in (code - 1, code, code + 1):
                if 0 <= beside < 1 << dtype.bits:
                    yield beside
        else:
            yield int(signed) & ((1 << dtype.bits) - 1)
