"""Columns of Arrow as tensors: every type, with nulls, slices and chunks, in every framework.

pyarrow is the oracle: the expected values are those of `to_pylist`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.introspect import FRAMEWORKS, INSPECTORS, check_tensor, x64

import tensorferry as ferry
from tensorferry import arrow

INTEGERS = {
    "int8": (pa.int8(), -(2**7), 2**7 - 1),
    "uint8": (pa.uint8(), 0, 2**8 - 1),
    "int16": (pa.int16(), -(2**15), 2**15 - 1),
    "uint16": (pa.uint16(), 0, 2**16 - 1),
    "int32": (pa.int32(), -(2**31), 2**31 - 1),
    "uint32": (pa.uint32(), 0, 2**32 - 1),
    "int64": (pa.int64(), -(2**63), 2**63 - 1),
    "uint64": (pa.uint64(), 0, 2**64 - 1),
}
FLOATS = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}
TYPES_OF_ARROW: dict[str, pa.DataType] = {
    **{name: kind for name, (kind, _, _) in INTEGERS.items()},
    **FLOATS,
    "bool": pa.bool_(),
}


@pytest.fixture(autouse=True)
def x64_enabled() -> Iterator[None]:
    with x64(True):
        yield


def sample(name: str, count: int) -> list[Any]:
    """Values of a type, its extremes among them."""
    rng = np.random.default_rng(count)
    if name == "bool":
        return rng.integers(0, 2, count).astype(bool).tolist()
    if name in INTEGERS:
        _, least, most = INTEGERS[name]
        drawn = rng.integers(least, most, count, dtype=name, endpoint=True).tolist()
        return [*drawn[:-2], least, most] if count > 1 else drawn
    drawn = np.asarray(rng.standard_normal(count), name)
    if count > 2:
        drawn[0], drawn[1] = -0.0, math.inf
    return drawn.tolist()


def make(name: str, form: str) -> pa.Array | pa.ChunkedArray:
    """A column of 77 elements or none, in one of several forms."""
    kind = TYPES_OF_ARROW[name]
    array = pa.array(sample(name, 77), kind)
    chunked = pa.chunked_array([array.slice(0, 30), array.slice(30, 0), array.slice(30, 47)])
    return {
        "whole": array,
        "slice": pa.array([*sample(name, 13), *sample(name, 77)], kind).slice(13, 77),
        "odd slice": array.slice(3, 41),
        "chunks": chunked,
        "slice of chunks": chunked.slice(7, 50),
        "one chunk": pa.chunked_array([array]),
        "empty": array.slice(5, 0),
        "no chunks": pa.chunked_array([], kind),
    }[form]


def expected(column: Any, name: str) -> np.ndarray:
    return np.array(column.to_pylist(), name)


def supports(target: str, name: str) -> bool:
    try:
        ferry.to(np.zeros(2, name), target)
    except ferry.UnsupportedDTypeError:
        return False
    return True


SHARED_FORMS = ("whole", "slice", "odd slice", "one chunk", "empty")
COPIED_FORMS = ("chunks", "slice of chunks", "no chunks")


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("form", SHARED_FORMS + COPIED_FORMS)
@pytest.mark.parametrize("name", TYPES_OF_ARROW)
def test_without_nulls(name: str, form: str, target: str) -> None:
    column = make(name, form)
    if not supports(target, name):
        with pytest.raises(ferry.UnsupportedDTypeError):
            ferry.to(column, target)
        return
    result = ferry.to(column, target)
    check_tensor(target, result, expected(column, name))
    plan = ferry.plan(column, target)
    assert plan.kind == "tensor"
    if target == "numpy":
        assert plan.shares == (name != "bool" and form in SHARED_FORMS)


def with_nulls(name: str) -> tuple[pa.ChunkedArray, np.ndarray]:
    """A sliced column in chunks with nulls, and where it is valid."""
    values = sample(name, 90)
    valid = np.random.default_rng(1).random(90) < 0.7
    nullable = [value if keep else None for value, keep in zip(values, valid, strict=True)]
    array = pa.array(nullable, TYPES_OF_ARROW[name])
    column = pa.chunked_array([array.slice(5, 20), array.slice(25, 1), array.slice(26, 60)])
    return column, valid[5:86]


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("name", TYPES_OF_ARROW)
def test_nulls(name: str, target: str) -> None:
    column, valid = with_nulls(name)
    if not supports(target, name):
        with pytest.raises(ferry.UnsupportedDTypeError):
            arrow.to(column, target, nulls=1)
        return
    count = int((~valid).sum())
    with pytest.raises(ferry.NotATensorError, match=f"{count} nulls\nhint: pass nulls="):
        ferry.to(column, target)
    filled = np.array([1 if value is None else value for value in column.to_pylist()], name)
    check_tensor(target, arrow.to(column, target, nulls=1), filled)
    values, mask = arrow.to(column, target, nulls="mask")
    check_tensor(target, mask, valid)
    known = np.frombuffer(INSPECTORS[target].values(values), name)
    assert known[valid].tobytes() == filled[valid].tobytes()
    if name in FLOATS:
        nan = np.array([math.nan if value is None else value for value in column.to_pylist()], name)
        result = arrow.to(column, target, nulls="nan")
        found = np.frombuffer(INSPECTORS[target].values(result), name)
        assert np.array_equal(found, nan, equal_nan=True)
    else:
        with pytest.raises(ferry.InvalidArgumentError, match="is for floats"):
            arrow.to(column, target, nulls="nan")


def test_a_bitmap_without_a_zero_bit_means_no_nulls() -> None:
    array = pa.array([1, 2, None, 4]).slice(0, 2)
    assert ferry.plan(array, "numpy").shares
    assert ferry.to(array, "numpy").tolist() == [1, 2]


def test_a_column_of_nulls() -> None:
    array = pa.array([None, None], pa.int32())
    assert arrow.to(array, "numpy", nulls=7).tolist() == [7, 7]
    with pytest.raises(ferry.UnsupportedDTypeError, match="no element type"):
        arrow.to(pa.nulls(3), "numpy", nulls=0)


@pytest.mark.parametrize("fill", [300, -1, 0.5, 2**70])
def test_a_number_that_the_type_lacks(fill: float) -> None:
    with pytest.raises(ferry.InvalidArgumentError, match="nulls is"):
        arrow.to(pa.array([1, None], pa.uint8()), "numpy", nulls=fill)


@pytest.mark.parametrize("form", ["whole", "chunks"])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "complex64"])
@pytest.mark.parametrize("name", TYPES_OF_ARROW)
def test_casts_are_those_of_numpy_arrays(name: str, dtype: str, form: str) -> None:
    column = make(name, form)
    result = ferry.to(column, "numpy", dtype=dtype)
    same = ferry.to(expected(column, name), "numpy", dtype=dtype)
    assert result.dtype == same.dtype
    assert result.tobytes() == same.tobytes()


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_tensors_of_one_shape(target: str) -> None:
    values = np.arange(60, dtype=np.float32).reshape(5, 3, 4)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 12)
    check_tensor(target, ferry.to(lists, target), values.reshape(5, 12))
    nested = pa.FixedSizeListArray.from_arrays(
        pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4), 3
    )
    check_tensor(target, ferry.to(nested.slice(1, 3), target), values[1:4])
    extension = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    check_tensor(target, ferry.to(extension, target), values)
    permuted = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [3, 4], permutation=[1, 0]), lists
    )
    check_tensor(
        target, ferry.to(permuted, target), np.ascontiguousarray(values.transpose(0, 2, 1))
    )
    chunks = pa.chunked_array([lists.slice(0, 2), lists.slice(2)])
    check_tensor(target, ferry.to(chunks, target), values.reshape(5, 12))


def test_nulls_of_tensors() -> None:
    kind = pa.list_(pa.int32(), 2)
    column = pa.array([[1, None], None, [5, 6]], kind)
    with pytest.raises(ferry.NotATensorError, match="nulls"):
        ferry.to(column, "numpy")
    assert arrow.to(column, "numpy", nulls=0).tolist() == [[1, 0], [0, 0], [5, 6]]
    _, mask = arrow.to(column, "numpy", nulls="mask")
    assert mask.tolist() == [[True, False], [False, False], [True, True]]


def test_booleans_in_tensors() -> None:
    values = np.random.default_rng(3).random((9, 5)) < 0.5
    column = pa.array(values.tolist(), pa.list_(pa.bool_(), 5))
    assert np.array_equal(ferry.to(column.slice(2), "numpy"), values[2:])


def test_bool8() -> None:
    column = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 1], pa.int8()))
    result = ferry.to(column, "numpy")
    assert result.dtype == bool
    assert result.tolist() == [False, True, True]


@pytest.mark.parametrize("codes", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()])
@pytest.mark.parametrize("values", [[5, 7, 9], [0.5, 1.5, 2.5], [True, False, True]])
def test_dictionaries(codes: pa.DataType, values: list[Any]) -> None:
    indices = [0, 2, 1, 2, 0]
    column = pa.DictionaryArray.from_arrays(pa.array(indices, codes), pa.array(values))
    decoded = [values[index] for index in indices]
    assert ferry.to(column, "numpy").tolist() == decoded
    assert ferry.to(column.slice(1, 3), "numpy").tolist() == decoded[1:4]
    assert arrow.to(column, "numpy", dictionary="codes").tolist() == indices
    other = pa.DictionaryArray.from_arrays(pa.array([0], codes), pa.array(values[1:]))
    two = pa.chunked_array([column, other])
    assert ferry.to(two, "numpy").tolist() == [*decoded, values[1]]


def test_dictionaries_with_nulls_and_text() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array([5, None]))
    with pytest.raises(ferry.NotATensorError, match="2 nulls"):
        ferry.to(column, "numpy")
    assert arrow.to(column, "numpy", nulls=-1).tolist() == [5, -1, -1]
    _, mask = arrow.to(column, "numpy", nulls="mask")
    assert mask.tolist() == [True, False, False]
    text = pa.array(["b", "a", "b"]).dictionary_encode()
    with pytest.raises(ferry.UnsupportedDTypeError, match='dictionary="codes"'):
        ferry.to(text, "numpy")
    assert arrow.to(text, "numpy", dictionary="codes").tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (pa.date32(), "date[days]"),
        (pa.date64(), "date[ms]"),
        (pa.time32("ms"), "time[ms]"),
        (pa.time64("ns"), "time[ns]"),
        (pa.timestamp("us"), "timestamp[us]"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp[s, Europe/Berlin]"),
        (pa.duration("ns"), "duration[ns]"),
    ],
)
def test_times(kind: pa.DataType, unit: str) -> None:
    storage = pa.int32() if kind in (pa.date32(), pa.time32("ms")) else pa.int64()
    column = pa.array([0, 5 if kind == pa.time32("ms") else 86_400_000], storage).cast(kind)
    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        ferry.to(column, "numpy")
    assert unit in str(caught.value)
    assert 'temporal="integer"' in str(caught.value)
    result = arrow.to(column, "numpy", temporal="integer")
    assert result.tolist() == column.cast(storage).to_pylist()


def test_lists_of_one_length() -> None:
    values = np.random.default_rng(4).random((6, 2, 3))
    column = pa.array(values.tolist())
    with pytest.raises(ferry.UnsupportedDTypeError, match=r'ragged= to ferry\.arrow\.to: "dense"'):
        ferry.to(column, "numpy")
    assert np.array_equal(arrow.to(column, "numpy", ragged="dense"), values)
    assert np.array_equal(arrow.to(column.slice(2, 3), "numpy", ragged="dense"), values[2:5])
    assert arrow.plan(column, "numpy", ragged="dense").shares
    chunks = pa.chunked_array([column.slice(0, 4), column.slice(4)])
    assert np.array_equal(arrow.to(chunks, "numpy", ragged="dense"), values)
    large = column.cast(pa.large_list(pa.large_list(pa.float64())))
    assert np.array_equal(arrow.to(large, "numpy", ragged="dense"), values)
    assert arrow.to(column.slice(0, 0), "numpy", ragged="dense").shape == (0, 0, 0)


@pytest.mark.parametrize("values", [[[1], [2, 3]], [[1, 2], [3], [4, 5, 6]], [[[1]], [[2], [3]]]])
def test_lists_of_different_lengths(values: list[Any]) -> None:
    with pytest.raises(ferry.UnsupportedError, match="different lengths"):
        arrow.to(pa.array(values), "numpy", ragged="dense")
    chunks = pa.chunked_array([pa.array(values[:1]), pa.array(values[1:2])])
    with pytest.raises(ferry.UnsupportedError, match="different lengths"):
        arrow.to(chunks, "numpy", ragged="dense")


def test_null_lists() -> None:
    with pytest.raises(ferry.NotATensorError, match="1 list is null"):
        arrow.to(pa.array([[1], None]), "numpy", ragged="dense")


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a"]),
        pa.array([b"a"]),
        pa.array([b"ab"], pa.binary(2)),
        pa.array(["a"], pa.string_view()),
        pa.array([1], pa.int32()).cast(pa.decimal128(20, 2)),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
        pa.RunEndEncodedArray.from_arrays([2], [1]),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.array([["a"]], pa.list_(pa.string(), 1)),
    ],
    ids=lambda column: str(column.type),
)
def test_types_without_a_tensor(column: pa.Array) -> None:
    with pytest.raises(ferry.UnsupportedDTypeError, match=r"\nhint: .") as caught:
        ferry.to(column, "numpy")
    assert "has no tensor" in str(caught.value)


def test_a_mask_of_permuted_tensors() -> None:
    storage = pa.array([[0, 1, None, 3, 4, 5]], pa.list_(pa.int32(), 6))
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
    values, mask = arrow.to(pa.ExtensionArray.from_storage(kind, storage), "numpy", nulls="mask")
    assert values.shape == mask.shape == (1, 3, 2)
    assert np.argwhere(~mask).tolist() == [[0, 2, 0]]


def test_values_under_a_mask_are_written() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([None] * 1000, pa.int8()), pa.array([7]))
    values, mask = arrow.to(column, "numpy", nulls="mask")
    assert not values.any()
    assert not mask.any()


def test_codes_of_different_dictionaries() -> None:
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()]
    column = pa.chunked_array(chunks)
    with pytest.raises(ferry.UnsupportedDTypeError, match="different dictionaries"):
        arrow.to(column, "numpy", dictionary="codes")
    unified = column.unify_dictionaries()
    assert arrow.to(unified, "numpy", dictionary="codes").tolist() == [0, 1, 1, 0]


def test_options_apply_within_tensors() -> None:
    times = pa.array([[1, 2]], pa.list_(pa.timestamp("us"), 2))
    with pytest.raises(ferry.UnsupportedDTypeError, match="temporal="):
        ferry.to(times, "numpy")
    assert arrow.to(times, "numpy", temporal="integer").tolist() == [[1, 2]]
    lists = pa.array([[1, 2]], pa.list_(pa.timestamp("us")))
    with pytest.raises(ferry.UnsupportedDTypeError, match="temporal="):
        arrow.to(lists, "numpy", ragged="dense")
    encoded = pa.array([9, 8, 9, 8]).dictionary_encode()
    tensors = pa.FixedSizeListArray.from_arrays(encoded, 2)
    assert ferry.to(tensors, "numpy").tolist() == [[9, 8], [9, 8]]
    assert arrow.to(tensors, "numpy", dictionary="codes").tolist() == [[0, 1], [0, 1]]
    of_lists = pa.array([[[1], [2]], [[3], [4]]], pa.list_(pa.list_(pa.int64()), 2))
    assert arrow.to(of_lists, "numpy", ragged="dense").tolist() == [[[1], [2]], [[3], [4]]]
    days = pa.array([1, 2, 1], pa.int32()).cast(pa.date32()).dictionary_encode()
    with pytest.raises(ferry.UnsupportedDTypeError, match="temporal="):
        ferry.to(days, "numpy")
    assert arrow.to(days, "numpy", temporal="integer").tolist() == [1, 2, 1]


def test_fills_are_checked_against_the_type_of_the_result() -> None:
    column = pa.array([1, None], pa.int8())
    assert arrow.to(column, "numpy", nulls=1000, dtype="int32").tolist() == [1, 1000]
    assert np.isnan(arrow.to(column, "numpy", nulls="nan", dtype="float32")[1])
    for nulls, dtype in ((300, "uint8"), ("nan", "int32"), (0.5, "int32")):
        with pytest.raises(ferry.InvalidArgumentError, match="nulls"):
            arrow.to(pa.array([1.0, None]), "numpy", nulls=nulls, dtype=dtype)


def test_bytes_that_are_no_booleans() -> None:
    column = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 2, -1], pa.int8()))
    assert ferry.to(column, "numpy").tobytes() == b"\0\1\1\1"
    assert ferry.to(column, "numpy", dtype="float32").tolist() == [0, 1, 1, 1]


def test_lists_without_any_offset() -> None:
    empty = pa.Array.from_buffers(
        pa.list_(pa.int32()), 0, [None, pa.py_buffer(b"")], children=[pa.array([], pa.int32())]
    )
    assert arrow.to(empty, "numpy", ragged="dense").shape == (0, 0)


def test_a_mask_is_bool_whatever_the_type_of_the_values() -> None:
    column = pa.array([1, None, 3])
    values, mask = arrow.to(column, "numpy", nulls="mask", dtype="float32")
    assert (values.dtype, mask.dtype) == (np.float32, bool)
    parts = arrow.plan(column, "numpy", nulls="mask", dtype="float32").parts
    assert [part.dtype for part in parts] == ["float32", "bool"]


@pytest.mark.parametrize("fill", [np.int64(3), np.uint8(3), True])
def test_numbers_of_numpy_fill(fill: Any) -> None:
    assert arrow.to(pa.array([1, None]), "numpy", nulls=fill).tolist() == [1, int(fill)]


def test_large_and_fractional_fills() -> None:
    column = pa.array([1, None], pa.uint64())
    assert arrow.to(column, "numpy", nulls=2**64 - 1).tolist() == [1, 2**64 - 1]
    halves = arrow.to(pa.array([1.0, None]), "numpy", nulls=np.float32(0.5))
    assert halves.tolist() == [1.0, 0.5]


def test_numbers_that_the_result_does_not_have() -> None:
    column = pa.array([1, None])
    with x64(False), pytest.raises(ferry.InvalidArgumentError, match="which int32 does not have"):
        arrow.to(column, "jax", nulls=2**31, dtype="default")
    for kind, number in ((pa.float16(), 70_000), (pa.float32(), 1e300)):
        with pytest.raises(ferry.InvalidArgumentError, match="does not have"):
            arrow.to(column.cast(kind), "numpy", nulls=number)
    assert arrow.to(column.cast(pa.float32()), "numpy", nulls=math.inf)[1] == math.inf
    assert arrow.to(column.cast(pa.float32()), "numpy", nulls=0.1)[1] == np.float32(0.1)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (pa.date32(), "days"),
        (pa.date64(), "milliseconds"),
        (pa.time32("s"), "seconds"),
        (pa.timestamp("us", "UTC"), "microseconds"),
        (pa.duration("ns"), "nanoseconds"),
    ],
    ids=str,
)
def test_the_unit_of_times_is_in_the_plan(kind: pa.DataType, unit: str) -> None:
    for column in (pa.array([0, 0], kind), pa.chunked_array([[0], [0]], kind)):
        plan = arrow.plan(column, "numpy", temporal="integer")
        assert f"the integers count {unit}" in plan.notes
    assert not any("count" in note for note in ferry.plan(pa.array([1]), "numpy").notes)
