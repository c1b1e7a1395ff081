"""The cells of the matrix: which sources there are, which cases, and who can make what.

`make` (in `matrix.constructors`) gives a `Cell`, or None where the source's framework cannot make
such a thing. Which those are is written down in `cannot_make`, by rule and with the reason, and a
test counts them: no cell goes missing without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matrix.expect import SourceProperties
from support.capsules import dense_strides
from support.dtypes import DType, sample, significant
from support.introspect import has_dtype
from support.memory import aligned


@dataclass
class Cell:
    """One source, ready to be carried."""

    object: Any
    facts: SourceProperties
    values: bytes
    """The logical elements in row-major order, as this machine's bytes, without the bits that do
    not count."""
    pokes: bool = True
    """Whether the memory behind it can be written at all."""

    def __post_init__(self) -> None:
        self.values = significant(self.facts.dtype, self.values)


@dataclass(frozen=True)
class Form:
    """How the elements of a case lie in memory, counted in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int = 0
    room: int = 12
    past: int = 0
    """Bytes past a 64-byte boundary at which the memory begins."""


def _deep(rank: int) -> Form:
    """Many dimensions, three of them longer than one."""
    shape = (2,) + (1,) * (rank - 3) + (3, 2)
    return Form(shape, dense_strides(shape, 1))


FORMS = {
    "dense": Form((3, 4), (4, 1)),
    "transposed": Form((4, 3), (1, 4)),
    "sliced with step": Form((3, 4), (8, 2), room=24),
    "negative step": Form((3, 4), (-4, -1), start=11),
    "broadcast": Form((3, 4), (0, 1), room=4),
    "zero dimensions": Form((), (), room=1),
    "empty": Form((0, 4), (4, 1), room=0),
    "size-one dimensions": Form((1, 3, 1), (17, 1, 5), room=3),
    "storage offset": Form((3, 4), (4, 1), start=5, room=17),
    "unaligned by 1": Form((3, 4), (4, 1), past=1),
    "unaligned by 4": Form((3, 4), (4, 1), past=4),
    "unaligned by 8": Form((3, 4), (4, 1), past=8),
    "unaligned by 16": Form((3, 4), (4, 1), past=16),
    "unaligned by 32": Form((3, 4), (4, 1), past=32),
    "nine dimensions": _deep(9),
    "ten dimensions": _deep(10),
    "sixty-four dimensions": _deep(64),
}

# Dense in form, and special in another way.
SPECIAL = (
    "broken stride",
    "read-only",
    "read-only map",
    "big-endian",
    "requires grad, leaf",
    "requires grad, not a leaf",
    "conjugate bit",
    "negative bit",
    "base dies",
    "variable",
)

CASES = (*FORMS, *SPECIAL)

Maker = Callable[[DType, str], Cell]


def form_of(case: str) -> Form:
    """The form of any case."""
    return FORMS.get(case, FORMS["dense"])


def fill(dtype: DType, form: Form) -> np.ndarray:
    """Memory for a form, with sample values in it, at its place beside a 64-byte boundary."""
    raw = aligned(form.room * dtype.size, past=form.past)
    raw[:] = sample(dtype, form.room)
    return raw


def arrange(dtype: DType, raw: np.ndarray, form: Form) -> np.ndarray:
    """The form over this memory as a NumPy array."""
    strides = tuple(step * dtype.size for step in form.strides)
    return np.ndarray(form.shape, dtype.numpy, raw, form.start * dtype.size, strides)


def flat(form: Form) -> Form:
    """The same memory in one dimension, for sources that know no other."""
    return Form((form.room,), (1,), 0, form.room, form.past)


# ----- who can make what

FRAMEWORK_SOURCES = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")
PROTOCOL_SOURCES = (
    "bytes",
    "bytearray",
    "memoryview",
    "array.array",
    "mmap",
    "dlpack legacy",
    "dlpack versioned",
    "array interface",
    "array method",
)
SOURCES = FRAMEWORK_SOURCES + PROTOCOL_SOURCES

_STRIDED = {case for case in CASES if case in FORMS}
_FORWARD = _STRIDED - {"negative step"}
_UNALIGNED = {case for case in CASES if case.startswith("unaligned")}
_DEEP = {"nine dimensions", "ten dimensions", "sixty-four dimensions"}
_ARRAY = _STRIDED | {"broken stride", "read-only", "read-only map", "big-endian", "base dies"}

_CASES_OF = {
    "numpy": _ARRAY,
    "memoryview": _ARRAY,
    "array interface": _ARRAY,
    "array method": _ARRAY,
    # No negative strides, no read-only memory, no foreign byte order.
    "torch": _FORWARD
    | {
        "requires grad, leaf",
        "requires grad, not a leaf",
        "conjugate bit",
        "negative bit",
        "base dies",
    },
    # NumPy's layouts on a GPU; no read-only memory, no foreign byte order, 32 dimensions.
    "cupy": _STRIDED - {"sixty-four dimensions"} | {"base dies"},
    # As torch, without its two bits, and with nine dimensions at most.
    "paddle": (_FORWARD - {"ten dimensions", "sixty-four dimensions"})
    | {"requires grad, leaf", "requires grad, not a leaf", "base dies"},
    # Slices are copied, memory is JAX's own and aligned; a column-major array comes in by DLPack.
    "jax": _DEEP | {"dense", "transposed", "zero dimensions", "empty", "base dies"},
    # As JAX, and row-major only.
    "tensorflow": _DEEP | {"dense", "zero dimensions", "empty", "base dies", "variable"},
    # Views are lazy and keep their strides; where memory begins is MLX's affair.
    "mlx": _STRIDED - _UNALIGNED | {"base dies"},
    "bytes": {"read-only", "empty"},
    "bytearray": {"dense", "empty"},
    "array.array": {"dense", "empty"},
    "mmap": {"dense", "read-only map"},
    # A capsule without a version cannot say that it is read-only; none can say that bytes are
    # swapped.
    "dlpack legacy": _STRIDED | {"base dies"},
    "dlpack versioned": _STRIDED | {"read-only", "read-only map", "base dies"},
}

_C_NUMBERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {
    "float32",
    "float64",
}


def cannot_make(source: str, case: str, dtype: DType) -> str | None:
    """Why a source cannot make a case with a dtype; None where it can."""
    if case not in _CASES_OF[source]:
        return "no such thing there"
    if source in (*FRAMEWORK_SOURCES, "cupy") and not has_dtype(source, dtype):
        return "no such type there"
    if source in ("bytes", "bytearray", "mmap") and dtype.name != "uint8":
        return "bytes and nothing else"
    if source == "array.array" and dtype.name not in _C_NUMBERS:
        return "C's integers and floats only"
    if source in ("memoryview", "array interface") and not dtype.is_numpys_own:
        return "no letter for the type"
    if source == "dlpack legacy" and dtype.is_narrow:
        return "several elements to a byte, by DLPack's rules, unless a flag says otherwise"
    if case in ("big-endian", "broken stride") and dtype.swap_unit == 1:
        return "one byte has no order, and no stride breaks it"
    if case.startswith("requires grad") and dtype.kind not in ("float", "complex"):
        return "gradients are for floats"
    if case.startswith("requires grad") and source == "paddle" and dtype.size == 1:
        return "no gradients of float8"
    if case == "conjugate bit" and dtype.kind != "complex":
        return "a real number is its own conjugate"
    if case == "negative bit" and (
        (dtype.size == 1 and dtype.kind == "float") or not _torch_negates(dtype)
    ):
        return "torch cannot negate it"
    lent = source in ("jax", "tensorflow") and case in ("base dies", "transposed", "variable")
    if lent and not dtype.is_numpys_own and dtype.name != "bfloat16":
        return "its DLPack does not take the type"
    return None


def _torch_negates(dtype: DType) -> bool:
    return dtype.kind not in ("bool", "unsigned") or dtype.name == "uint8"
