"""Random columns and tables of Arrow as tensors, with any options: pyarrow is the oracle.

`make test` runs a few examples of each property, and `make test-arrow` as many as
ARROW_EXAMPLES says. The examples are the same each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow.random_columns import NUMBERS, Column, ColumnType, columns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.introspect import INSPECTORS, TYPES, x64

import tensorferry as ferry
from tensorferry import arrow

EXAMPLES = settings(
    max_examples=int(os.environ.get("ARROW_EXAMPLES", "200")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
TARGETS = st.sampled_from(("numpy", "torch", "jax", "tensorflow"))
PAD = object()


@pytest.fixture(autouse=True, scope="module")
def x64_enabled() -> Iterator[None]:
    with x64(True):
        yield


@dataclass(frozen=True)
class Options:
    """The options of a call."""

    nulls: str | float = "error"
    ragged: str = "error"
    pad: float | None = None
    dictionary: str = "decode"
    temporal: str = "error"
    dtype: str | None = None

    def arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@st.composite
def options(draw: st.DrawFn) -> Options:
    ragged = draw(st.sampled_from(("error", "dense", "dense", "offsets", "offsets")))
    numbers = st.sampled_from((0, 1, 7, -3, 300, 2.5))
    return Options(
        nulls=draw(st.one_of(st.sampled_from(("error", "mask", "mask", "nan")), numbers)),
        ragged=ragged,
        pad=draw(st.one_of(st.none(), numbers)) if ragged == "dense" else None,
        dictionary=draw(st.sampled_from(("decode", "codes"))),
        temporal=draw(st.sampled_from(("integer", "integer", "integer", "error"))),
        dtype=draw(st.sampled_from((None, None, "float32", "float64"))),
    )


def supports(target: str, dtype: str) -> bool:
    try:
        ferry.to(np.zeros(2, dtype), target)
    except ferry.UnsupportedDTypeError:
        return False
    return True


def fits(number: float, dtype: str) -> bool:
    if np.dtype(dtype).kind == "f":
        return True
    least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return isinstance(number, int) and least <= number <= most


class Expectation:
    """What the rows of a column become, and which errors are right instead."""

    def __init__(self, kind: ColumnType, rows: list[Any], given: Options) -> None:
        self.given = given
        self.source = (
            kind.dtype if kind.codes is None or given.dictionary == "decode" else kind.codes
        )
        self.dtype = given.dtype or self.source
        self.errors: set[type[Exception]] = set()
        if (
            kind.name not in NUMBERS
            and not kind.name.startswith("bool")
            and given.temporal == "error"
        ):
            self.errors.add(ferry.UnsupportedDTypeError)
        lists = [level for level in kind.levels if level.fixed is None]
        if lists and given.ragged == "error":
            self.errors.add(ferry.UnsupportedDTypeError)
        if given.pad is not None and lists and not fits(given.pad, self.dtype):
            self.errors.add(ferry.InvalidArgumentError)
        self.result = self._column(rows, [level.fixed for level in kind.levels])

    def _column(self, rows: list[Any], sizes: list[int | None]) -> Any:
        """A pair of values and a mask, or of such pairs and offsets."""
        widths: list[int] = []
        elements = rows
        for size in sizes:
            lists = [row for row in elements if row is not None and row is not PAD]
            if size is None:
                if any(row is None for row in elements):
                    self.errors.add(ferry.NotATensorError)
                if self.given.ragged == "offsets":
                    inner = self._column([one for row in lists for one in row], sizes[1:])
                    return inner, np.cumsum([0, *map(len, lists)]).astype("int64")
                lengths = {len(row) for row in lists}
                if len(lengths) > 1 and self.given.pad is None:
                    self.errors.add(ferry.UnsupportedError)
            widths.append(max((len(row) for row in lists), default=0) if size is None else size)
            elements = [one for row in elements for one in padded(row, widths[-1])]
        return self._values(elements, (len(rows), *widths))

    def _values(self, elements: list[Any], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        valid = [one is not None and one is not PAD for one in elements]
        nulls, fill = self.given.nulls, 0
        if any(one is None for one in elements):
            if nulls == "error":
                self.errors.add(ferry.NotATensorError)
            elif nulls == "nan":
                fill = np.nan
                if np.dtype(self.dtype).kind != "f":
                    self.errors.add(ferry.InvalidArgumentError)
            elif nulls != "mask":
                fill = nulls
                if not fits(nulls, self.dtype):
                    self.errors.add(ferry.InvalidArgumentError)
        if self.errors:
            return np.zeros(0), np.zeros(0)
        source = np.array(
            [one if ok else 0 for one, ok in zip(elements, valid, strict=True)], self.source
        )
        with np.errstate(over="ignore"):
            values = source.astype(self.dtype)
        for index, one in enumerate(elements):
            if not valid[index]:
                values[index] = self.given.pad if one is PAD else fill
        return values.reshape(shape), np.array(valid, bool).reshape(shape)

    def check(self, target: str, convert: Any) -> None:
        """Converts, and compares the result or the error."""
        if not supports(target, self.dtype):
            self.errors.add(ferry.UnsupportedDTypeError)
        if self.errors:
            with pytest.raises(tuple(self.errors)):
                convert()
        else:
            self.compare(target, convert(), self.result)

    def compare(self, target: str, result: Any, expected: Any) -> None:
        values, other = expected
        if isinstance(values, tuple):
            self.compare(target, result[0], values)
            same_bits(target, result[1], other)
        elif self.given.nulls == "mask":
            same_bits(target, result[1], other)
            found = np.frombuffer(INSPECTORS[target].values(result[0]), values.dtype)
            shown = np.where(other.reshape(-1), found, values.reshape(-1))
            assert INSPECTORS[target].shape(result[0]) == values.shape
            assert shown.tobytes() == values.tobytes()
        else:
            same_bits(target, result, values)


def padded(row: list[Any] | None, width: int) -> list[Any]:
    """The elements of a row; a null row has null elements."""
    if row is None:
        return [None] * width
    if row is PAD:
        return [PAD] * width
    return [*row, *[PAD] * (width - len(row))]


def same_bits(target: str, result: Any, values: np.ndarray) -> None:
    look = INSPECTORS[target]
    assert isinstance(result, TYPES[target])
    assert look.dtype(result) == values.dtype.name
    assert look.shape(result) == values.shape
    assert look.values(result) == values.tobytes()


def expectation(
    column: Column, given: Options, start: int = 0, stop: int | None = None
) -> Expectation:
    rows = column.rows(codes=given.dictionary == "codes")[start:stop]
    return Expectation(column.type, rows, given)


@EXAMPLES
@given(columns(), options(), TARGETS)
def test_columns(column: Column, given: Options, target: str) -> None:
    expected = expectation(column, given)
    expected.check(target, lambda: arrow.to(column.chunks, target, **given.arguments()))


@EXAMPLES
@given(columns(), TARGETS)
def test_columns_without_options(column: Column, target: str) -> None:
    expected = expectation(column, Options())
    expected.check(target, lambda: ferry.to(column.chunks, target))
    if column.chunks.num_chunks:
        first = column.chunks.chunk(0)
        expected = expectation(Column(column.type, pa.chunked_array([first])), Options())
        expected.check(target, lambda: ferry.to(first, target))


@st.composite
def tables(draw: st.DrawFn, *, flat: bool = False) -> list[Column]:
    """Columns of the same number of rows, each with chunks of its own."""
    rows = draw(st.integers(0, 40))
    return draw(st.lists(columns(rows=rows, flat=flat), min_size=1, max_size=3))


def names_of(table: list[Column]) -> list[str]:
    return [f"c{index}" for index in range(len(table))]


@EXAMPLES
@given(tables(flat=True), options(), TARGETS)
def test_matrices(table: list[Column], given: Options, target: str) -> None:
    given = replace(given, nulls=0 if given.nulls == "mask" else given.nulls)
    source = pa.table([column.chunks for column in table], names_of(table))
    parts = [expectation(column, given) for column in table]
    errors = set().union(*(part.errors for part in parts))
    if len({part.dtype for part in parts}) > 1:
        errors.add(ferry.InvalidArgumentError)
    if not supports(target, parts[0].dtype):
        errors.add(ferry.UnsupportedDTypeError)
    if errors:
        with pytest.raises(tuple(errors)):
            arrow.to(source, target, stack=True, **given.arguments())
        return
    result = arrow.to(source, target, stack=True, **given.arguments())
    same_bits(target, result, np.stack([part.result[0] for part in parts], axis=1))


SOURCES: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "reader": lambda table: table.to_reader(),
    "record batches": lambda table: iter(table.to_batches()),
    "tables": lambda table: [table.slice(0, 5), table.slice(5, 0), table.slice(5)],
}


@EXAMPLES
@given(
    tables(),
    options(),
    TARGETS,
    st.integers(1, 17),
    st.booleans(),
    st.sampled_from(sorted(SOURCES)),
)
def test_batches(
    table: list[Column], given: Options, target: str, rows: int, drop_last: bool, form: str
) -> None:
    """Batches are those of the rows, wherever the chunks of a column end."""
    names = names_of(table)
    source = pa.table([column.chunks for column in table], names)
    arguments = {**given.arguments(), "drop_last": drop_last}
    batches = arrow.batches(SOURCES[form](source), rows, target, **arguments)
    stop = source.num_rows - source.num_rows % rows if drop_last else source.num_rows
    for start in range(0, stop, rows):
        parts = [expectation(column, given, start, start + rows) for column in table]
        errors = set().union(*(part.errors for part in parts))
        if not all(supports(target, part.dtype) for part in parts):
            errors.add(ferry.UnsupportedDTypeError)
        if errors:
            with pytest.raises(tuple(errors)):
                next(batches)
            return
        batch = next(batches)
        assert list(batch) == names
        for name, part in zip(names, parts, strict=True):
            part.compare(target, batch[name], part.result)
    assert list(batches) == []


@EXAMPLES
@given(
    st.sampled_from(NUMBERS), st.binary(max_size=200), st.integers(0, 9), st.integers(0, 9), TARGETS
)
def test_every_bit_of_a_number_is_kept(
    name: str, memory: bytes, skipped: int, border: int, target: str
) -> None:
    """NaNs of any bits among them. The memory may begin at any address."""
    count = len(memory) // np.dtype(name).itemsize
    buffer = pa.py_buffer(memory)
    array = pa.Array.from_buffers(pa.from_numpy_dtype(np.dtype(name)), count, [None, buffer])
    array = array.slice(skipped)
    expected = np.frombuffer(memory, name, count)[skipped:]
    if not supports(target, name):
        return
    same_bits(target, ferry.to(array, target), expected)
    chunks = pa.chunked_array([array.slice(0, border), array.slice(border)])
    same_bits(target, ferry.to(chunks, target), expected)
