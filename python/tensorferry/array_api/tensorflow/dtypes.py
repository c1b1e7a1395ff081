"""Element types: TensorFlow's objects by the standard's names, and type promotion.

The promotion table is the standard's: within signed, unsigned, real and complex types, signed with
unsigned, and real with complex. Integers with floats, and bool with anything, it leaves undefined,
and here they are an error with a hint. float16 and bfloat16, which the standard does not know, are
narrower floats; where the two meet, float32 holds both.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tensorferry._native import InvalidArgumentError, UnsupportedDTypeError

tf: Any = importlib.import_module("tensorflow")

DType: TypeAlias = Any

bool = tf.bool
int8, int16, int32, int64 = tf.int8, tf.int16, tf.int32, tf.int64
uint8, uint16, uint32, uint64 = tf.uint8, tf.uint16, tf.uint32, tf.uint64
float16, bfloat16, float32, float64 = tf.float16, tf.bfloat16, tf.float32, tf.float64
complex64, complex128 = tf.complex64, tf.complex128

#: The default types of Python floats, ints and complex numbers, as in PyTorch. int64 instead of
#: int32, because TensorFlow keeps int32 tensors on the host even with a GPU.
DEFAULT_FLOAT, DEFAULT_INTEGER, DEFAULT_COMPLEX = float32, int64, complex64

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
FLOATS = (float16, bfloat16, float32, float64)
COMPLEXES = (complex64, complex128)


class Kind(NamedTuple):
    """A set of types, and its name."""

    words: str
    members: frozenset[DType]


BOOLEAN = Kind("boolean", frozenset({bool}))
INTEGER = Kind("integer", frozenset(SIGNED + UNSIGNED))
REAL_FLOATING = Kind("real floating-point", frozenset(FLOATS))
COMPLEX = Kind("complex", frozenset(COMPLEXES))
BITS = Kind("integer or boolean", INTEGER.members | BOOLEAN.members)
REAL = Kind("real numeric", INTEGER.members | REAL_FLOATING.members)
FLOATING = Kind("floating-point", REAL_FLOATING.members | COMPLEX.members)
NUMERIC = Kind("numeric", REAL.members | COMPLEX.members)
ANY = Kind("numeric or boolean", NUMERIC.members | BOOLEAN.members)

#: For ops that TensorFlow has for signed types only; arithmetic that wraps is the same in both.
SIGNED_TWIN = dict(zip(UNSIGNED, SIGNED, strict=True))

_KINDS = {
    "bool": BOOLEAN.members,
    "signed integer": frozenset(SIGNED),
    "unsigned integer": frozenset(UNSIGNED),
    "integral": INTEGER.members,
    "real floating": REAL_FLOATING.members,
    "complex floating": COMPLEX.members,
    "numeric": NUMERIC.members,
}


def bits(dtype: DType) -> int:
    """The number of bits of an element."""
    return int(dtype.size) * 8


def real_of(dtype: DType) -> DType:
    """The type of the parts of a complex type; a real type itself."""
    return dtype.real_dtype if dtype in COMPLEX.members else dtype


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts are of this type."""
    if dtype in COMPLEX.members:
        return dtype
    return complex128 if dtype == float64 else complex64


def resolve(dtype: DType, name: str = "dtype=") -> DType:
    """A type as TensorFlow's own object, from that or its name."""
    try:
        found = tf.as_dtype(dtype)
    except TypeError:
        found = None
    if found not in ANY.members:
        raise UnsupportedDTypeError(
            f"{name} was given {dtype!r}, which is not a type of the namespace\n"
            "hint: pass one of its own, such as xp.float32"
        )
    return found


@functools.cache
def _promote(one: DType, other: DType) -> DType | None:
    if one == other:
        return one
    pair = {one, other}
    if pair <= INTEGER.members:
        for group in (SIGNED, UNSIGNED):
            if pair <= set(group):
                return builtins.max(one, other, key=bits)
        unsigned, signed = (one, other) if one in UNSIGNED else (other, one)
        wider = [dtype for dtype in SIGNED if bits(dtype) > bits(unsigned)]
        return builtins.max(wider[0], signed, key=bits) if wider else None
    if pair <= REAL_FLOATING.members:
        return float32 if bits(one) == bits(other) else builtins.max(one, other, key=bits)
    if pair <= FLOATING.members:
        return complex128 if float64 in pair or complex128 in pair else complex64
    return None


def promote(name: str, *given: DType) -> DType:
    """The common type, by the standard's table."""
    common = given[0]
    for other in given[1:]:
        met = _promote(common, other)
        if met is None:
            raise UnsupportedDTypeError(
                f"{name} was given {common.name} and {other.name}, whose common type the standard "
                "leaves undefined\nhint: cast one of them first: xp.astype(x, dtype)"
            )
        common = met
    return common


def check_scalar(name: str, value: Any, dtype: DType) -> None:
    """Raises unless a Python scalar can be combined with a tensor of this type."""
    if isinstance(value, builtins.bool):
        allowed = dtype in BOOLEAN.members
    elif isinstance(value, int):
        allowed = dtype in NUMERIC.members
    elif isinstance(value, float):
        allowed = dtype in FLOATING.members
    else:
        allowed = dtype in COMPLEX.members
    if not allowed:
        raise UnsupportedDTypeError(
            f"{name} was given the Python {type(value).__name__} {value!r} for a tensor of "
            f"{dtype.name}\nhint: cast the tensor first: xp.astype(x, dtype)"
        )
    if dtype in INTEGER.members and not dtype.min <= value <= dtype.max:
        raise InvalidArgumentError(
            f"{name} was given {value}, which {dtype.name} cannot hold\n"
            "hint: cast the tensor to a wider type first: xp.astype(x, dtype)"
        )


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The common type of tensors, types and Python scalars."""
    scalars = [x for x in arrays_and_dtypes if isinstance(x, builtins.bool | int | float | complex)]
    others = [x for x in arrays_and_dtypes if not isinstance(x, int | float | complex)]
    if not others:
        raise InvalidArgumentError("result_type needs a tensor or a type\nhint: pass at least one")
    common = promote("result_type", *(_of(x, "result_type") for x in others))
    for value in scalars:
        # A Python float makes a real type of nothing, but a complex one of a real type.
        if isinstance(value, complex) and common in REAL_FLOATING.members:
            common = complex_of(common)
        check_scalar("result_type", value, common)
    return common


def _of(x: Any, name: str) -> DType:
    return resolve(x.dtype if isinstance(x, tf.Tensor | tf.Variable) else x, name)


def can_cast(from_: Any, to: DType, /) -> builtins.bool:
    """Whether a type, or a tensor's type, can be promoted to another."""
    target = resolve(to, "can_cast")
    return builtins.bool(_promote(_of(from_, "can_cast"), target) == target)


def isdtype(dtype: DType, kind: Any) -> builtins.bool:
    """Whether a type is of a kind: a type, a word such as "real floating", or a tuple of these."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, each) for each in kind)
    own = resolve(dtype, "isdtype")
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise InvalidArgumentError(
                f"isdtype was given the kind {kind!r}\n"
                f"hint: the kinds are {', '.join(map(repr, _KINDS))}"
            )
        return own in _KINDS[kind]
    return builtins.bool(own == resolve(kind, "isdtype"))


@dataclass(frozen=True)
class FloatLimits:
    """The limits of a floating-point type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerLimits:
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating-point type, or of the parts of a complex one."""
    dtype = _of(type, "finfo")
    if dtype not in FLOATING.members:
        raise UnsupportedDTypeError(
            f"finfo takes a floating-point type, not {dtype.name}\nhint: use xp.iinfo"
        )
    part = real_of(dtype)
    limits: Any = importlib.import_module("ml_dtypes").finfo(part.as_numpy_dtype)
    return FloatLimits(
        bits=bits(part),
        eps=float(limits.eps),
        max=float(limits.max),
        min=float(limits.min),
        smallest_normal=float(limits.smallest_normal),
        dtype=part,
    )


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer type."""
    dtype = _of(type, "iinfo")
    if dtype not in INTEGER.members:
        raise UnsupportedDTypeError(
            f"iinfo takes an integer type, not {dtype.name}\nhint: use xp.finfo"
        )
    return IntegerLimits(bits=bits(dtype), max=int(dtype.max), min=int(dtype.min), dtype=dtype)
