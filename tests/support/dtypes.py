"""The 28 element types, written down once more so that the tests do not believe the library's
own table."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type."""

    name: str
    kind: str
    """One of "bool", "signed", "unsigned", "float", "complex"."""
    bits: int
    code: int
    """DLPack's type code."""

    def __repr__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        """Bytes that hold one element."""
        return max(1, self.bits // 8)

    @property
    def is_numpys_own(self) -> bool:
        """Whether NumPy has it without ml_dtypes."""
        return self.name in OWN

    @property
    def is_narrow(self) -> bool:
        """Whether less than a byte counts."""
        return self.bits < 8

    @property
    def is_64_bit(self) -> bool:
        """Whether JAX keeps it only while x64 is on."""
        return self.name in ("int64", "uint64", "float64", "complex128")

    def casts_to(self, other: DType) -> bool:
        """Whether `dtype=` allows the cast: complex numbers keep their imaginary part."""
        return self.kind != "complex" or other.kind in ("complex", "bool")

    @property
    def narrowed(self) -> DType:
        """The type of half the width where this one is wide."""
        half = str(self.bits // 2)
        return NAMED[self.name.replace(str(self.bits), half)] if self.is_64_bit else self

    @property
    def numpy(self) -> np.dtype:
        """As NumPy knows it."""
        return (
            np.dtype(self.name) if self.is_numpys_own else np.dtype(getattr(ml_dtypes, self.name))
        )

    @property
    def swap_unit(self) -> int:
        """The bytes that a change of byte order turns round together."""
        return self.size // 2 if self.kind == "complex" else self.size

    @property
    def typestr(self) -> str:
        """The array interface's name, in native order."""
        return self.numpy.str


OWN = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]

ALL = (
    DType("bool", "bool", 8, 6),
    *(DType(f"int{bits}", "signed", bits, 0) for bits in (4, 8, 16, 32, 64)),
    *(DType(f"uint{bits}", "unsigned", bits, 1) for bits in (4, 8, 16, 32, 64)),
    *(DType(f"float{bits}", "float", bits, 2) for bits in (16, 32, 64)),
    DType("bfloat16", "float", 16, 4),
    DType("float8_e3m4", "float", 8, 7),
    DType("float8_e4m3", "float", 8, 8),
    DType("float8_e4m3b11fnuz", "float", 8, 9),
    DType("float8_e4m3fn", "float", 8, 10),
    DType("float8_e4m3fnuz", "float", 8, 11),
    DType("float8_e5m2", "float", 8, 12),
    DType("float8_e5m2fnuz", "float", 8, 13),
    DType("float8_e8m0fnu", "float", 8, 14),
    DType("float6_e2m3fn", "float", 6, 15),
    DType("float6_e3m2fn", "float", 6, 16),
    DType("float4_e2m1fn", "float", 4, 17),
    DType("complex64", "complex", 64, 5),
    DType("complex128", "complex", 128, 5),
)
NAMED = {dtype.name: dtype for dtype in ALL}
FLOAT32 = NAMED["float32"]
UINT8 = NAMED["uint8"]
assert len(ALL) == 28


def sample(dtype: DType, count: int, seed: int = 0) -> np.ndarray:
    """The bytes of `count` elements: any bits at all, also of a bool, but for bits that do not
    count, and NaNs that signal (which some frameworks' own copies make quiet). A third of the
    bools are false."""
    random = np.random.default_rng([zlib.crc32(dtype.name.encode()), seed])
    raw = random.integers(0, 256, count * dtype.size, dtype=np.uint8)
    if dtype.kind == "bool":
        raw[random.integers(0, 3, raw.size) == 0] = 0
    if dtype.is_narrow:
        raw &= (1 << dtype.bits) - 1
    if dtype.kind in ("float", "complex") and dtype.size > 1:
        quiet = {"float16": (2, 0x0200), "bfloat16": (2, 0x0040)}.get(
            dtype.name, {4: (4, 1 << 22), 8: (8, 1 << 51)}.get(dtype.swap_unit)
        )
        unit, bit = quiet
        words = raw.view(f"u{unit}")
        part = {2: dtype.numpy, 4: np.dtype("f4"), 8: np.dtype("f8")}[unit]
        with np.errstate(invalid="ignore"):
            words[np.isnan(words.view(part))] |= np.array(bit, words.dtype)
    if dtype.kind == "bool" and count > 1 and bool(raw[0]) == bool(raw[-1]):
        raw[0] = raw[0] == 0
    elif count > 1 and bytes(raw[: dtype.size]) == bytes(raw[-dtype.size :]):
        raw[0] ^= 1
    return raw


def significant(dtype: DType, raw: bytes) -> bytes:
    """The bytes with the bits that do not count taken out: a true bool is 1."""
    if dtype.kind == "bool":
        return (np.frombuffer(raw, np.uint8) != 0).tobytes()
    if not dtype.is_narrow:
        return raw
    return (np.frombuffer(raw, np.uint8) & ((1 << dtype.bits) - 1)).tobytes()
