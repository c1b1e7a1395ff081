"""Random columns of Arrow for property tests: types, nulls, lists, slices and chunks.

Memory is made by hand, because pyarrow's own functions make the simplest form of it. Here arrays
begin within their buffers, children have elements that no parent uses, and nulls have random bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

NUMBERS = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)
# Dates and times, and the type of their integers.
TEMPORAL = {
    "date32": (pa.date32(), "int32"),
    "date64": (pa.date64(), "int64"),
    "time32": (pa.time32("ms"), "int32"),
    "time64": (pa.time64("ns"), "int64"),
    "timestamp": (pa.timestamp("us"), "int64"),
    "timestamp with zone": (pa.timestamp("s", "UTC"), "int64"),
    "duration": (pa.duration("ns"), "int64"),
}
CODES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True)
class Level:
    """A level of lists: of a fixed length, of one length that happens to be the same, or of any."""

    fixed: int | None = None
    common: int | None = None
    is_large: bool = False
    has_nulls: bool = False


@dataclass(frozen=True)
class ColumnType:
    """The type of a column: its levels of lists, the outermost first, and its elements."""

    levels: tuple[Level, ...]
    # One of NUMBERS, "bool", "bool8" or the keys of TEMPORAL: of the values of a dictionary, too.
    name: str
    codes: str | None = None
    has_nulls: bool = False

    @property
    def dtype(self) -> str:
        """The element type of a tensor of the column, with dictionaries decoded."""
        if self.name in TEMPORAL:
            return TEMPORAL[self.name][1]
        return "bool" if self.name == "bool8" else self.name


@dataclass(frozen=True)
class Column:
    """A column, its type, and the same values as pyarrow's Python objects."""

    type: ColumnType
    chunks: pa.ChunkedArray

    def rows(self, *, codes: bool = False) -> list[Any]:
        """The values as integers, floats, booleans, None and lists of them."""
        return [row for chunk in self.chunks.chunks for row in python_rows(chunk, codes)]


def python_rows(array: pa.Array, codes: bool) -> list[Any]:
    """pyarrow's own conversion, in which dates and times are integers."""
    kind = array.type
    if pa.types.is_dictionary(kind) and codes:
        return array.indices.to_pylist()
    if pa.types.is_temporal(kind):
        return array.cast(f"int{kind.bit_width}").to_pylist()
    if pa.types.is_fixed_size_list(kind):
        elements = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        flat = python_rows(elements, codes)
        lists = [flat[i * kind.list_size : (i + 1) * kind.list_size] for i in range(len(array))]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = array.offsets.to_pylist() if len(array) else [0]
        flat = python_rows(array.values.slice(offsets[0], offsets[-1] - offsets[0]), codes)
        ends = [offset - offsets[0] for offset in offsets]
        lists = [flat[start:end] for start, end in itertools.pairwise(ends)]
    else:
        return array.to_pylist()
    valid = array.is_valid().to_pylist()
    return [row if is_valid else None for row, is_valid in zip(lists, valid, strict=True)]


class Maker:
    """Makes arrays of one type from a seed, so that hypothesis draws few choices."""

    def __init__(self, kind: ColumnType, seed: int) -> None:
        self.type = kind
        self.random = np.random.default_rng(seed)
        if kind.codes is not None:
            count = int(self.random.integers(1, 6))
            self.dictionary = self.elements(kind.name, count, kind.has_nulls)

    def array(self, count: int) -> pa.Array:
        return self._nested(self.type.levels, count)

    def _count(self) -> int:
        """The number of elements that an array has before or after those that are used."""
        return int(self.random.integers(0, 11)) if self.random.random() < 0.5 else 0

    def _sliced(self, make: Callable[[int], pa.Array], count: int) -> pa.Array:
        before = self._count()
        return make(before + count + self._count()).slice(before, count)

    def _bitmap(self, count: int, has_nulls: bool) -> pa.Buffer | None:
        if not has_nulls:
            # A bitmap without a zero bit means the same as none.
            return None if self.random.random() < 0.5 else pa.py_buffer(b"\xff" * (count // 8 + 1))
        valid = self.random.random(count + 1) < self.random.choice([0.0, 0.5, 0.9])
        return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())

    def _nested(self, levels: tuple[Level, ...], count: int) -> pa.Array:
        if not levels:
            return self._sliced(self._leaf, count)
        level, below = levels[0], levels[1:]

        def fixed(count: int) -> pa.Array:
            size = level.fixed or 0
            child = self._nested(below, count * size)
            bitmap = self._bitmap(count, level.has_nulls)
            kind = pa.list_(child.type, size)
            return pa.Array.from_buffers(kind, count, [bitmap], children=[child])

        def lists(count: int) -> pa.Array:
            lengths = self.random.integers(0, 4, count)
            if level.common is not None:
                lengths[:] = level.common
            first = self._count()
            width = "int64" if level.is_large else "int32"
            offsets = (first + np.cumsum([0, *lengths])).astype(width)
            child = self._nested(below, int(offsets[-1]) + self._count())
            kind = (pa.large_list if level.is_large else pa.list_)(child.type)
            bitmap = self._bitmap(count, level.has_nulls)
            buffers = [bitmap, pa.py_buffer(offsets.tobytes())]
            return pa.Array.from_buffers(kind, count, buffers, children=[child])

        return self._sliced(lists if level.fixed is None else fixed, count)

    def _leaf(self, count: int) -> pa.Array:
        if self.type.codes is None:
            return self.elements(self.type.name, count, self.type.has_nulls)
        codes = self.random.integers(0, len(self.dictionary), count).astype(self.type.codes)
        bitmap = self._bitmap(count, self.type.has_nulls)
        if bitmap is not None and count:
            # A code under a null may be any number.
            valid = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[:count]
            codes[valid == 0] = np.iinfo(codes.dtype).max
        kind = pa.from_numpy_dtype(codes.dtype)
        indices = pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(codes.tobytes())])
        return pa.DictionaryArray.from_arrays(indices, self.dictionary, safe=False)

    def elements(self, name: str, count: int, has_nulls: bool) -> pa.Array:
        """Numbers of random bits. A NaN is the one that Python has, which pyarrow gives back."""
        bitmap = self._bitmap(count, has_nulls)
        if name == "bool8":
            storage = pa.Array.from_buffers(pa.int8(), count, [bitmap, self._bytes(count)])
            return pa.ExtensionArray.from_storage(pa.bool8(), storage)
        if name == "bool":
            bits = self._bytes(count // 8 + 1)
            return pa.Array.from_buffers(pa.bool_(), count, [bitmap, bits])
        kind, dtype = TEMPORAL.get(name, (None, name))
        values = np.frombuffer(self.random.bytes(count * np.dtype(dtype).itemsize), dtype).copy()
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan
        kind = kind or pa.from_numpy_dtype(values.dtype)
        return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(values.tobytes())])

    def _bytes(self, count: int) -> pa.Buffer:
        return pa.py_buffer(self.random.bytes(count))


@st.composite
def levels(draw: st.DrawFn) -> tuple[Level, ...]:
    """Lists of any length, and below them lists of a fixed one."""
    variable = st.builds(
        Level,
        common=st.sampled_from((None, None, 0, 1, 3)),
        is_large=st.booleans(),
        has_nulls=st.sampled_from((False, False, False, True)),
    )
    fixed = st.builds(Level, fixed=st.integers(1, 3), has_nulls=st.booleans())
    return (*draw(st.lists(variable, max_size=2)), *draw(st.lists(fixed, max_size=2)))


@st.composite
def types(draw: st.DrawFn, *, flat: bool = False) -> ColumnType:
    """A type; a flat one has no levels."""
    name = draw(st.sampled_from((*NUMBERS, "bool", "bool8", *TEMPORAL)))
    codes = (
        st.none() if name in TEMPORAL or name == "bool8" else st.sampled_from((None, None, *CODES))
    )
    return ColumnType(
        levels=() if flat else draw(st.one_of(st.just(()), levels())),
        name=name,
        codes=draw(codes),
        has_nulls=draw(st.booleans()),
    )


@st.composite
def columns(draw: st.DrawFn, *, rows: int | None = None, flat: bool = False) -> Column:
    """A column in any number of chunks, with `rows` rows in all if that is given."""
    kind = draw(types(flat=flat))
    maker = Maker(kind, draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(0, 20), max_size=4))
    if rows is not None:
        borders = sorted(draw(st.lists(st.integers(0, rows), max_size=3)))
        lengths = np.diff([0, *borders, rows]).tolist()
    arrays = [maker.array(length) for length in lengths]
    return Column(kind, pa.chunked_array(arrays, type=maker.array(0).type))
