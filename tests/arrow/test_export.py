"""Tensors as columns and tables of Arrow: what pyarrow, polars and DuckDB read, and who owns it."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import duckdb
import jax.numpy as jnp
import ml_dtypes
import nanoarrow
import numpy as np
import paddle
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import torch
from support import fake_driver

import tensorferry as ferry
from tensorferry import arrow

DTYPES = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)


def address(array: pa.Array) -> int:
    while isinstance(array, pa.FixedSizeListArray | pa.ExtensionArray):
        array = array.storage if isinstance(array, pa.ExtensionArray) else array.values
    return array.buffers()[1].address


@pytest.mark.parametrize("dtype", DTYPES)
def test_pyarrow_shares_the_memory(dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 100, 17).astype(dtype)
    column = pa.array(arrow.export(values))
    assert column.to_pylist() == values.tolist()
    assert str(column.type) == {
        "float16": "halffloat",
        "float32": "float",
        "float64": "double",
    }.get(dtype, dtype)
    assert address(column) == values.__array_interface__["data"][0]
    column.validate(full=True)


def test_more_axes() -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    column = pa.array(arrow.export(matrix))
    assert column.type == pa.list_(pa.float64(), 4)
    assert column.to_pylist() == matrix.tolist()
    assert address(column) == matrix.__array_interface__["data"][0]
    cube = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    tensors = pa.array(arrow.export(cube))
    assert isinstance(tensors, pa.FixedShapeTensorArray)
    assert tensors.type == pa.fixed_shape_tensor(pa.int16(), (3, 4))
    assert np.array_equal(tensors.to_numpy_ndarray(), cube)
    tensors.validate(full=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6).reshape(2, 3),
        lambda: jnp.arange(6).reshape(2, 3),
        lambda: tf.reshape(tf.range(6), (2, 3)),
        lambda: np.asfortranarray(np.arange(6).reshape(2, 3)),
        lambda: np.arange(12).reshape(2, 6)[:, ::2] // 2,
        lambda: np.arange(6, dtype=">i8").reshape(2, 3),
    ],
    ids=["torch", "jax", "tensorflow", "fortran", "strided", "swapped"],
)
def test_sources(make: Any) -> None:
    assert pa.array(arrow.export(make())).to_pylist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 2)])
def test_empty(shape: tuple[int, ...]) -> None:
    exported = arrow.export(np.empty(shape, np.float32))
    assert len(pa.array(exported)) == shape[0]
    assert ferry.to(exported, "numpy").shape == shape


@pytest.mark.parametrize(
    "dtype",
    [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2],
    ids=lambda dtype: np.dtype(dtype).name,
)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3)])
def test_types_that_arrow_lacks_return(dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.array([0, 1, 1, 0, 1, 0]).astype(dtype).reshape(shape)
    result = ferry.to(arrow.export(values), "numpy")
    assert result.dtype == values.dtype
    assert np.array_equal(result, values)


BOOLEANS = np.random.default_rng(1).integers(0, 2, 70).astype(bool)


@pytest.mark.parametrize("shape", [(0,), (1,), (8,), (67,), (3, 3), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("is_strided", [False, True])
def test_booleans_are_packed(shape: tuple[int, ...], is_strided: bool) -> None:
    values = BOOLEANS[: math.prod(shape)].reshape(shape)
    if is_strided:
        values = np.asfortranarray(values.repeat(2, axis=0))[::2]
    exported = arrow.export(values)
    column = pa.array(exported)
    column.validate(full=True)
    if len(shape) == 1:
        assert column.type == pa.bool_()
    elif len(shape) == 2:
        assert column.type == pa.list_(pa.bool_(), shape[1])
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    rows = values if len(shape) == 1 else values.reshape(shape[0], math.prod(shape[1:]))
    assert storage.to_pylist() == rows.tolist()
    result = ferry.to(exported, "numpy")
    assert result.dtype == bool
    assert result.shape == shape
    assert np.array_equal(result, values)


def test_the_plan_of_booleans() -> None:
    plan = arrow.export(BOOLEANS).plan
    assert (plan.action, plan.dtype) == ("copy", "bool")
    assert plan.steps == [("repack", "Arrow stores bool in its own packed format")]
    # The call releases the GIL from 64 KiB on.
    many = np.tile(BOOLEANS, 2000)
    assert np.array_equal(ferry.to(arrow.export(torch.from_numpy(many)), "numpy"), many)


def test_booleans_in_gpu_memory_are_shared() -> None:
    fake_driver.run_program("arrow/export_booleans.py")


def test_any_byte_but_zero_is_true() -> None:
    values = np.arange(256, dtype=np.uint8).view(bool)
    assert pa.array(arrow.export(values)).to_pylist() == [False] + [True] * 255


def test_consumers_compute_with_booleans() -> None:
    exported = arrow.export({"x": BOOLEANS, "y": np.arange(70)})
    expected = np.arange(70)[BOOLEANS].tolist()
    frame = pl.DataFrame(exported)
    assert frame["x"].sum() == BOOLEANS.sum()
    assert frame.filter(pl.col("x"))["y"].to_list() == expected
    assert frame["x"].cast(pl.Int8).to_list() == BOOLEANS.astype(int).tolist()
    table = pa.table(exported)
    assert table.filter(pc.field("x"))["y"].to_pylist() == expected
    assert table.to_pandas()["x"].dtype == bool
    assert duckdb.sql("select y from exported where x order by y").fetchnumpy()["y"].tolist() == (
        expected
    )


def test_tensorferry_reads_booleans_of_pandas_in_place() -> None:
    masked = pd.Series([True, None, False], dtype="boolean")
    values, valid = arrow.to(masked, "numpy", nulls="mask")
    assert valid.tolist() == [True, False, True]
    assert values[valid].tolist() == [True, False]
    assert arrow.plan(masked, "numpy", nulls="mask").parts[0].shares


@pytest.mark.parametrize(
    "values",
    [np.zeros(2), np.zeros((2, 3)), np.zeros((2, 3, 2)), np.zeros(2, bool), np.zeros((2, 3), bool)],
    ids=lambda values: f"{values.dtype}{values.ndim}",
)
def test_types_are_those_of_pyarrow(values: np.ndarray, tmp_path: Path) -> None:
    kind: Any = pa.from_numpy_dtype(values.dtype)
    if values.ndim == 3:
        kind = pa.fixed_shape_tensor(kind, values.shape[1:])
    elif values.ndim == 2:
        kind = pa.list_(kind, values.shape[1])
    plain = pa.table({"a": pa.nulls(1, kind)})
    exported = pa.table(arrow.export({"a": values}))
    assert exported.schema == plain.schema
    assert pa.concat_tables([exported, plain])["a"].null_count == 1
    column = pa.array(arrow.export(values))
    assert len(pa.concat_arrays([column, plain["a"].chunk(0)])) == 3
    with pq.ParquetWriter(tmp_path / "x.parquet", plain.schema) as writer:
        writer.write_table(exported)
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 2


def test_tables() -> None:
    columns = {"a": np.arange(3), "b": torch.ones(3, 2), "c": jnp.zeros(3)}
    exported = arrow.export(columns)
    table = pa.table(exported)
    assert table.column_names == ["a", "b", "c"]
    assert table["b"].to_pylist() == [[1.0, 1.0]] * 3
    table.validate(full=True)
    assert pa.record_batch(exported).num_rows == 3
    frame = pl.DataFrame(exported)
    assert frame.shape == (3, 3)
    assert frame["a"].to_list() == [0, 1, 2]
    assert duckdb.sql("select sum(a) from exported").fetchall() == [(3,)]
    again = ferry.to(exported, "torch")
    assert again["b"].tolist() == [[1.0, 1.0]] * 3


def test_polars_reads_a_column() -> None:
    assert pl.Series(arrow.export(np.arange(4.0))).to_list() == [0, 1, 2, 3]
    assert pl.Series(arrow.export(np.arange(4).reshape(2, 2))).to_list() == [[0, 1], [2, 3]]


def test_the_memory_lives_as_long_as_a_consumer() -> None:
    values = np.arange(1000.0)
    gone = weakref.ref(values)
    exported = arrow.export({"x": values})
    table = pa.table(exported)
    column = table["x"].chunk(0)
    del values, exported, table
    gc.collect()
    assert gone() is not None
    assert column[999].as_py() == 999
    del column
    gc.collect()
    assert gone() is None


def test_capsules_that_nobody_takes() -> None:
    values = np.arange(10)
    gone = weakref.ref(values)
    exported = arrow.export({"x": values})
    del values
    for method in ("__arrow_c_schema__", "__arrow_c_array__", "__arrow_c_stream__"):
        getattr(exported, method)()
    pa.table(exported)
    del exported
    gc.collect()
    assert gone() is None


def test_what_cannot_be_exported() -> None:
    with pytest.raises(
        ferry.InvalidArgumentError, match="no rows\nhint: pass a tensor with at least one axis"
    ):
        arrow.export(np.array(3))
    with pytest.raises(ferry.UnsupportedDTypeError, match="no type complex64\nhint: cast"):
        arrow.export(np.zeros(2, np.complex64))
    with pytest.raises(ferry.InvalidArgumentError, match="3 rows and column 'b' has 2"):
        arrow.export({"a": np.zeros(3), "b": np.zeros(2)})
    with pytest.raises(ferry.NotATensorError, match="column 'a'"):
        arrow.export({"a": "text"})
    for values in ([1, 2], [np.zeros(2), np.zeros(2)], (np.zeros(2),), "text", 3):
        with pytest.raises(
            ferry.NotATensorError,
            match="not a tensor\nhint: export a tensor, or a dict of tensors by column",
        ):
            arrow.export(values)


def test_names_of_columns() -> None:
    with pytest.raises(ferry.InvalidArgumentError, match="zero byte\nhint: remove the zero byte"):
        arrow.export({"a\0": np.zeros(2)})
    with pytest.raises(ferry.InvalidArgumentError, match="named '1'\nhint: give each column"):
        arrow.export({1: np.zeros(2), "1": np.ones(2)})
    assert pa.table(arrow.export({1: np.zeros(2), "2": np.ones(2)})).column_names == ["1", "2"]


@pytest.mark.parametrize("dtype", [np.uint8, bool])
def test_rows_longer_than_a_list(dtype: Any) -> None:
    for shape in ((0, 2**31), (0, 2**16, 2**15)):
        with pytest.raises(
            ferry.InvalidArgumentError, match=r"2147483648 elements.*\nhint: export"
        ):
            arrow.export(np.empty(shape, dtype))
    exported = arrow.export(np.empty((0, 2**31 - 1), dtype))
    assert pa.array(exported).type.list_size == 2**31 - 1
    assert ferry.to(exported, "numpy").shape == (0, 2**31 - 1)


def test_the_plan_says_what_is_shared() -> None:
    values = np.arange(12.0).reshape(4, 3)
    plan = arrow.export(values).plan
    assert (plan.source, plan.target, plan.action, plan.shape) == (
        "numpy",
        "arrow",
        "share",
        (4, 3),
    )
    assert plan.notes[0].startswith("do not write the source while the result")
    plan = arrow.export(values.T).plan
    assert (plan.action, plan.bytes_moved) == ("copy", values.nbytes)
    assert plan.steps
    table = arrow.export({"a": values, "b": values[::2].repeat(2, axis=0)[:, 1]}).plan
    assert [(part.name, part.action) for part in table.parts] == [
        ("['a']", "share"),
        ("['b']", "copy"),
    ]
    with ferry.trace() as trips:
        arrow.export({"a": values, "b": values})
        arrow.export(values)
    assert [trip.plan.target for trip in trips] == ["arrow"] * 3
    with ferry.trace() as trips:
        ferry.to(pd.DataFrame({"a": pd.array([1, None], "Int64")}).dropna(), "numpy")
    assert [trip.plan.target for trip in trips] == ["numpy"]


def test_memory_that_consumers_could_not_use_is_copied() -> None:
    unaligned = np.frombuffer(bytearray(8 * 3 + 1), np.uint8)[1:].view(np.int64)
    unaligned[:] = [1, 2, 3]
    exported = arrow.export(unaligned)
    assert exported.plan.action == "copy"
    assert pa.array(exported).to_pylist() == [1, 2, 3]
    # Consumers release memory on threads of their own, and Paddle releases it under a lock.
    exported = arrow.export(paddle.to_tensor([1.0, 2.0]))
    assert exported.plan.action == "copy"
    assert pa.array(exported).to_pylist() == [1.0, 2.0]
    swapped = np.array([1, 2], ">i4")
    assert pa.array(arrow.export(swapped)).to_pylist() == [1, 2]


def test_who_shares_the_memory() -> None:
    """The table in the guide."""
    values = np.arange(100.0)
    column, table = arrow.export(values), arrow.export({"x": values})

    def is_shared(array: np.ndarray) -> bool:
        return np.shares_memory(array, values)

    assert is_shared(pa.table(table)["x"].chunk(0).to_numpy())
    assert is_shared(pl.Series(column).to_numpy())
    assert is_shared(pl.DataFrame(table)["x"].to_numpy())
    assert nanoarrow.c_array(column).buffers[1] == values.__array_interface__["data"][0]
    assert not is_shared(pd.DataFrame.from_arrow(table)["x"].to_numpy())
    assert duckdb.from_arrow(table).sum("x").fetchall() == [(values.sum(),)]
