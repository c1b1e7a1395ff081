"""Errors of tables and columns: nulls, lists, types without a tensor, options, batches, exports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import tensorferry as ferry
from tensorferry import arrow

Case = Callable[[Path], object]

NULLS = pa.array([1, None])
RAGGED = pa.array([[1, 2], [3]])
TEXT = pa.array(["a", "b"])
TABLE = pa.table({"a": [1, 2], "b": [0.5, 1.5]})
INSIDE = pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int64()), 2))
LEVELS = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
ONE = pa.DictionaryArray.from_arrays([0, 1], ["a", "b"])
OTHER = pa.DictionaryArray.from_arrays([0, 1], ["b", "a"])


def simple(x: Any) -> Case:
    return lambda _: ferry.to(x, "numpy")


def to(x: Any, framework: str = "numpy", **options: Any) -> Case:
    return lambda _: arrow.to(x, framework, **options)


def batches(x: Any, rows: Any = 2, **options: Any) -> Case:
    return lambda _: list(arrow.batches(x, rows, "numpy", **options))


def export(x: Any) -> Case:
    return lambda _: arrow.export(x)


CASES: dict[str, Case] = {
    "column: nulls": simple(NULLS),
    "column: nulls of a table": simple(pa.table({"a": NULLS})),
    "column: null structs": simple(pa.array([{"a": 1}, None])),
    "column: lists": simple(RAGGED),
    "column: text": simple(TEXT),
    "column: dictionary of text": simple(TEXT.dictionary_encode()),
    "column: times": simple(pa.array([1], pa.timestamp("ms", "UTC"))),
    "column: nothing but nulls": simple(pa.nulls(2)),
    "column: decimals": simple(pa.array([1], pa.decimal128(5))),
    "column: binaries": simple(pa.array([b"x"])),
    "column: list views": simple(pa.array([[1]], pa.list_view(pa.int64()))),
    "table: two columns of one name": simple(pa.table([[1], [2]], names=["a", "a"])),
    "object: lazy frame": simple(pl.LazyFrame({"a": [1]})),
    "object: dataset": simple(datasets.Dataset(TABLE)),
    "object: array": to(np.zeros(2)),
    "object: iterable dataset": to(datasets.Dataset(TABLE).to_iterable_dataset()),
    "option: nulls": to(NULLS, nulls="drop"),
    "option: nulls that the type lacks": to(NULLS, nulls=0.5),
    "option: nan for integers": to(NULLS, nulls="nan"),
    "option: mask of a matrix": to(TABLE, stack=True, nulls="mask"),
    "option: ragged": to(RAGGED, ragged="other"),
    "option: pad without dense": to(RAGGED, pad=0),
    "option: native for NumPy": to(RAGGED, ragged="native"),
    "option: native with a mask": to(RAGGED, "torch", ragged="native", nulls="mask"),
    "option: column": to(TABLE, columns=["a", "c"]),
    "option: column twice": to(TABLE, columns=["a", "a"]),
    "option: column name that is not text": to(TABLE, columns=[0]),
    "option: columns of a column": to(TEXT, columns=["a"]),
    "option: stack of a column": to(NULLS, stack=True),
    "option: stack of two types": to(TABLE, stack=True),
    "option: stack of lists": to(pa.table({"a": RAGGED}), stack=True, ragged="offsets"),
    "lists: different lengths": to(RAGGED, ragged="dense"),
    "lists: in fixed-size lists": to(INSIDE, ragged="dense", pad=0),
    "lists: null": to(pa.array([[1], None]), ragged="offsets"),
    "lists: lists of lists for PyTorch": to(pa.array([[[1]]]), "torch", ragged="native"),
    "lists: structs for PyTorch": to(pa.array([[{"a": 1}]]), "torch", ragged="native"),
    "dictionaries: different ones": to(pa.chunked_array([ONE, OTHER]), dictionary="codes"),
    "pandas: nulls": simple(pd.Series([1, None], dtype="Int64")),
    "pandas: text": simple(pd.DataFrame({"a": ["x"]})),
    "pandas: times": simple(pd.Series(pd.to_datetime(["2020"])).dt.tz_localize("UTC")),
    "pandas: categories of text": simple(pd.Series(["a"], dtype="category")),
    "pandas: column": to(pd.DataFrame({"a": [1]}), columns=["b"]),
    "pandas: part of a label": to(pd.DataFrame([[1, 2]], columns=LEVELS), columns=["a"]),
    "batches: rows": batches(TABLE, 0),
    "batches: other schema": batches([TABLE, TABLE.select(["a"])]),
    "batches: frames": batches([pd.DataFrame({"a": [1]})]),
    "export: no axis": export(np.float32(1)),
    "export: complex": export(np.zeros(2, "complex64")),
    "export: different rows": export({"a": np.zeros(2), "b": np.zeros(3)}),
    "export: list": export([np.zeros(2)]),
    "export: one name twice": export({1: np.zeros(2), "1": np.zeros(2)}),
}
