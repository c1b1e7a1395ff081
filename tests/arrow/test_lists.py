"""Lists of different lengths: values and offsets, padded tensors, ragged tensors of frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
import torch
from support.introspect import FRAMEWORKS, check_tensor, x64

import tensorferry as ferry
from tensorferry import arrow

TYPES_OF_ELEMENTS = {
    "int8": pa.int8(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
}


@pytest.fixture(autouse=True)
def x64_enabled() -> Iterator[None]:
    with x64(True):
        yield


def rows_of(name: str, count: int = 40) -> list[list[Any]]:
    """Lists of 0 to 5 elements."""
    rng = np.random.default_rng(count)
    lengths = rng.integers(0, 6, count)
    return [
        np.asarray(rng.integers(0, 2 if name == "bool" else 100, n), name).tolist() for n in lengths
    ]


def make(name: str, form: str) -> pa.Array | pa.ChunkedArray:
    kind = TYPES_OF_ELEMENTS[name]
    array = pa.array(rows_of(name), pa.list_(kind))
    return {
        "whole": array,
        "large": array.cast(pa.large_list(kind)),
        "slice": array.slice(7, 20),
        "chunks": pa.chunked_array([array.slice(3, 9), array.slice(5, 0), array.slice(20, 20)]),
        "empty": array.slice(4, 0),
        "no chunks": pa.chunked_array([], pa.list_(kind)),
        "empty lists": pa.array([[], [], []], pa.list_(kind)),
    }[form]


FORMS = ("whole", "large", "slice", "chunks", "empty", "no chunks", "empty lists")


def flat(rows: list[list[Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    values = np.array([value for row in rows for value in row], name)
    return values, np.cumsum([0, *map(len, rows)]).astype(np.int64)


def padded(rows: list[list[Any]], name: str, pad: Any) -> np.ndarray:
    width = max(map(len, rows), default=0)
    out = np.full((len(rows), width), pad, name)
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TYPES_OF_ELEMENTS)
def test_offsets(name: str, form: str) -> None:
    column = make(name, form)
    values, offsets = arrow.to(column, "numpy", ragged="offsets")
    expected_values, expected_offsets = flat(column.to_pylist(), name)
    check_tensor("numpy", values, expected_values)
    check_tensor("numpy", offsets, expected_offsets)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TYPES_OF_ELEMENTS)
def test_padded(name: str, form: str) -> None:
    column = make(name, form)
    check_tensor(
        "numpy",
        arrow.to(column, "numpy", ragged="dense", pad=1),
        padded(column.to_pylist(), name, 1),
    )


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_every_framework(target: str) -> None:
    column = make("float32", "chunks")
    rows = column.to_pylist()
    values, offsets = arrow.to(column, target, ragged="offsets")
    expected_values, expected_offsets = flat(rows, "float32")
    check_tensor(target, values, expected_values)
    check_tensor(target, offsets, expected_offsets)
    check_tensor(
        target, arrow.to(column, target, ragged="dense", pad=-1), padded(rows, "float32", -1)
    )
    plan = arrow.plan(column, target, ragged="offsets")
    assert [part.dtype for part in plan.parts] == ["float32", "int64"]
    plan = arrow.plan(column, target, ragged="dense", pad=0)
    assert ("pad", "the lists of the column are padded to one length") in plan.steps


def test_offsets_of_jax_without_64_bit_types() -> None:
    column = make("float32", "chunks")
    with x64(False):
        _, offsets = arrow.to(column, "jax", ragged="offsets")
        assert offsets.dtype == "int32"
        assert offsets.tolist() == flat(column.to_pylist(), "float32")[1].tolist()


def test_values_of_one_chunk_are_shared_and_cut() -> None:
    array = pa.array([[1, 2], [3], [4, 5, 6]], pa.list_(pa.int64()))
    values, offsets = arrow.to(array.slice(1, 1), "numpy", ragged="offsets")
    assert (values.tolist(), offsets.tolist()) == ([3], [0, 1])
    assert values.__array_interface__["data"][0] == array.values.buffers()[1].address + 16


def test_the_type_is_that_of_the_values() -> None:
    column = pa.array([[1, 2], [3]])
    values, offsets = arrow.to(column, "numpy", ragged="offsets", dtype="float32")
    assert (values.dtype, offsets.dtype) == (np.float32, np.int64)
    result = arrow.to(column, "numpy", ragged="dense", pad=0.5, dtype="float32")
    assert result.tolist() == [[1, 2], [3, 0.5]]


def test_nulls_among_the_elements() -> None:
    column = pa.chunked_array(
        [pa.array([[1, None], [2]]), pa.array([[None], []], pa.list_(pa.int64()))]
    )
    with pytest.raises(ferry.NotATensorError, match="2 nulls"):
        arrow.to(column, "numpy", ragged="offsets")
    values, offsets = arrow.to(column, "numpy", ragged="offsets", nulls=-1)
    assert (values.tolist(), offsets.tolist()) == ([1, -1, 2, -1], [0, 2, 3, 4, 4])
    (values, mask), offsets = arrow.to(column, "numpy", ragged="offsets", nulls="mask")
    assert mask.tolist() == [True, False, True, False]
    assert values[mask].tolist() == [1, 2]
    result = arrow.to(column, "numpy", ragged="dense", pad=0, nulls=-1)
    assert result.tolist() == [[1, -1], [2, 0], [-1, 0], [0, 0]]


def test_a_mask_is_false_where_padding_is() -> None:
    column = pa.array([[1, 2], [3], [None, 5], []], pa.list_(pa.int64()))
    values, mask = arrow.to(column, "torch", ragged="dense", pad=9, nulls="mask")
    assert mask.tolist() == [[True, True], [True, False], [False, True], [False, False]]
    assert mask.dtype == torch.bool
    assert values[mask].tolist() == [1, 2, 3, 5]
    assert values[1, 1] == 9


@pytest.mark.parametrize("options", [{"ragged": "offsets"}, {"ragged": "dense", "pad": 0}])
def test_lists_that_are_null(options: dict[str, Any]) -> None:
    column = pa.array([[1], None, [2]])
    for nulls in ("error", "mask", 0):
        with pytest.raises(ferry.NotATensorError, match="1 list is null"):
            arrow.to(column, "numpy", nulls=nulls, **options)


def test_lists_of_lists() -> None:
    rows = [[[1, 2], [3]], [], [[4, 5, 6], [], [7]]]
    column = pa.chunked_array([pa.array(rows[:2]), pa.array(rows[2:])])
    (values, inner), outer = arrow.to(column, "numpy", ragged="offsets")
    assert values.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert inner.tolist() == [0, 2, 3, 6, 6, 7]
    assert outer.tolist() == [0, 2, 2, 5]
    result = arrow.to(column, "numpy", ragged="dense", pad=0)
    assert result.tolist() == [
        [[1, 2, 0], [3, 0, 0], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[4, 5, 6], [0, 0, 0], [7, 0, 0]],
    ]
    assert arrow.to(column, "tensorflow", ragged="native").to_list() == rows


def test_lists_of_vectors() -> None:
    rows = [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]]
    column = pa.array(rows, pa.list_(pa.list_(pa.float32(), 2)))
    values, offsets = arrow.to(column, "numpy", ragged="offsets")
    assert values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert offsets.tolist() == [0, 1, 1, 3]
    result = arrow.to(column, "numpy", ragged="dense", pad=0)
    assert result.tolist() == [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[3, 4], [5, 6]]]


def test_a_column_without_lists_has_no_offsets() -> None:
    table = pa.table({"a": [1, 2], "b": [[1], [2, 3]]})
    result = arrow.to(table, "numpy", ragged="offsets")
    assert result["a"].tolist() == [1, 2]
    assert [part.tolist() for part in result["b"]] == [[1, 2, 3], [0, 1, 3]]
    result = arrow.to(table, "numpy", ragged="dense", pad=0)
    assert (result["a"].shape, result["b"].tolist()) == ((2,), [[1, 0], [2, 3]])


def test_nested_tensors_of_torch() -> None:
    rows = [[1.5, 2.5], [3.5], []]
    result = arrow.to(pl.Series(rows), "torch", ragged="native")
    assert result.is_nested
    assert [row.tolist() for row in result.unbind()] == rows
    table = arrow.to(pa.table({"a": rows, "b": [1, 2, 3]}), "torch", ragged="native")
    assert table["a"].is_nested
    assert table["b"].tolist() == [1, 2, 3]
    with pytest.raises(ferry.UnsupportedError, match="one ragged axis"):
        arrow.to(pa.array([[[1]]]), "torch", ragged="native")


def test_ragged_tensors_of_tensorflow() -> None:
    rows = [[1, 2], [], [3]]
    result = arrow.to(pa.array(rows), "tensorflow", ragged="native")
    assert isinstance(result, tf.RaggedTensor)
    assert result.to_list() == rows
    assert result.dtype == tf.int64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ragged": "native"}, "is for PyTorch and TensorFlow, not numpy"),
        ({"ragged": "other"}, 'hint: pass "error", "dense", "offsets" or "native"'),
        ({"ragged": None}, "ragged is an object of type NoneType"),
        ({"pad": 0}, 'ragged is not "dense"'),
        ({"ragged": "dense", "pad": "x"}, "pad is"),
        ({"ragged": "dense", "pad": 1.5}, "pad is 1.5, which int64 does not have"),
        ({"ragged": "dense", "pad": 2**63}, "which int64 does not have"),
        ({"ragged": "dense"}, "pass pad="),
        ({}, "ragged= to ferry.arrow.to"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ferry.FerryError) as caught:
        arrow.to(pa.array([[1, 2], [3]]), "numpy", **options)
    assert message in str(caught.value)


def test_native_with_a_mask_or_a_matrix() -> None:
    for options in ({"nulls": "mask"}, {"stack": True}):
        with pytest.raises(ferry.InvalidArgumentError, match='ragged="native" and'):
            arrow.to(pa.table({"a": [[1]]}), "torch", ragged="native", **options)


def test_lists_inside_fixed_size_lists() -> None:
    column = pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int64()), 2))
    for options in ({"ragged": "dense", "pad": 0}, {"ragged": "offsets"}):
        with pytest.raises(ferry.UnsupportedDTypeError, match="hint: flatten the column first"):
            arrow.to(column, "numpy", **options)


def test_lists_of_structs_have_no_ragged_tensor() -> None:
    column = pa.array([[{"a": 1}], []])
    for target in ("torch", "tensorflow"):
        with pytest.raises(ferry.UnsupportedError, match="structs"):
            arrow.to(column, target, ragged="native")
    values, offsets = arrow.to(column, "numpy", ragged="offsets")
    assert (values["a"].tolist(), offsets.tolist()) == ([1], [0, 1, 1])
