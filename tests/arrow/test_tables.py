"""Tables of Arrow as dicts of tensors and as matrices, from pyarrow, polars and DuckDB."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import tensorferry as ferry
from tensorferry import arrow

RNG = np.random.default_rng(0)
COLUMNS: dict[str, np.ndarray] = {
    "a": RNG.integers(-5, 5, 100),
    "b": RNG.random(100, dtype=np.float32),
    "c": RNG.random(100) < 0.5,
}


def tables() -> dict[str, Any]:
    table = pa.table(COLUMNS)
    return {
        "pyarrow Table": table,
        "pyarrow RecordBatch": table.to_batches()[0],
        "pyarrow Table in chunks": pa.concat_tables([table.slice(0, 33), table.slice(33)]),
        "pyarrow reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches(7)),
        "polars DataFrame": pl.DataFrame(COLUMNS),
        "polars DataFrame in chunks": pl.concat(
            [pl.DataFrame(COLUMNS)[:40], pl.DataFrame(COLUMNS)[40:]], rechunk=False
        ),
        "DuckDB relation": duckdb.from_arrow(table),
    }


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_a_table_is_a_dict(name: str, target: str) -> None:
    result = ferry.to(tables()[name], target)
    assert list(result) == list(COLUMNS)
    for column, values in COLUMNS.items():
        found = ferry.to(result[column], "numpy")
        assert found.dtype == values.dtype
        assert np.array_equal(found, values)


@pytest.mark.parametrize("name", tables())
def test_a_table_is_a_matrix(name: str) -> None:
    expected = np.stack([values.astype(np.float32) for values in COLUMNS.values()], axis=1)
    result = arrow.to(tables()[name], "torch", stack=True, dtype="float32")
    assert torch.equal(result, torch.from_numpy(expected))
    with pytest.raises(ferry.InvalidArgumentError, match="dtype="):
        arrow.to(tables()[name], "torch", stack=True)
    two = arrow.to(tables()[name], "numpy", stack=True, columns=["c", "a"], dtype="int64")
    assert np.array_equal(two, np.stack([COLUMNS["c"], COLUMNS["a"]], axis=1))


def test_a_matrix_of_many_rows_and_columns() -> None:
    values = RNG.integers(0, 255, (70_001, 5), dtype=np.uint8)
    table = pa.table({str(n): values[:, n] for n in range(5)})
    cut = pa.concat_tables([table.slice(0, 1), table.slice(1, 40_000), table.slice(40_001)])
    assert np.array_equal(arrow.to(cut, "numpy", stack=True), values)
    wide = RNG.random((3, 3000))
    table = pa.table({str(n): wide[:, n] for n in range(3000)})
    assert np.array_equal(arrow.to(table, "numpy", stack=True), wide)


def test_nulls_in_a_matrix() -> None:
    table = pa.table({"a": [1.0, None], "b": [None, 2.0]})
    with pytest.raises(ferry.NotATensorError, match="column 'a': the column has 1 null"):
        arrow.to(table, "numpy", stack=True)
    assert arrow.to(table, "numpy", stack=True, nulls=-1).tolist() == [[1.0, -1.0], [-1.0, 2.0]]
    with pytest.raises(ferry.InvalidArgumentError, match="mask"):
        arrow.to(table, "numpy", stack=True, nulls="mask")


def test_a_plan_has_a_part_for_each_column() -> None:
    plan = ferry.plan(pa.table(COLUMNS), "numpy")
    assert [part.name for part in plan.parts] == ["['a']", "['b']", "['c']"]
    assert [part.action for part in plan.parts] == ["share", "share", "copy"]
    assert plan.parts[2].steps[0][0] == "unpack"
    with ferry.trace() as trips:
        ferry.to(pa.table(COLUMNS), "numpy")
    assert [trip.plan.action for trip in trips] == ["share", "share", "copy"]


class Reader:
    """A stream, and what tells its schema."""

    def __init__(self, schema: Any = None) -> None:
        self.reader = pa.RecordBatchReader.from_batches(
            pa.table(COLUMNS).schema, pa.table(COLUMNS).to_batches(7)
        )
        if schema is not None:
            self.schema = schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.reader.__arrow_c_stream__(requested_schema)


def test_a_plan_reads_the_schema_of_a_stream_alone() -> None:
    schema = pa.table(COLUMNS).schema
    unread = (
        "read",
        "a plan reads no stream and runs no query, so it knows only the types and counts 0 rows",
    )
    for x in (Reader().reader, Reader(schema)):
        for plan in (ferry.plan(x, "torch"), arrow.plan(x, "torch"), ferry.plan([x], "torch")):
            assert [part.dtype for part in plan.parts] == ["int64", "float32", "bool"]
            assert [part.shape for part in plan.parts] == [(0,)] * 3
            assert all(unread in part.steps for part in plan.parts)
        plan = arrow.plan(x, "numpy", stack=True, columns=["a", "b"], dtype="float32")
        assert (plan.shape, plan.steps[0]) == ((0, 2), unread)
        with pytest.raises(ferry.InvalidArgumentError, match="no column 'd'"):
            arrow.plan(x, "numpy", columns=["d"])
        assert ferry.to(x, "numpy")["a"].tolist() == COLUMNS["a"].tolist()
    with pytest.raises(ferry.InvalidArgumentError, match="hint: plan one of its batches"):
        ferry.plan(Reader(), "torch")


def test_a_plan_runs_no_query() -> None:
    rows = []
    with duckdb.connect() as connection:
        connection.create_function("record", lambda x: rows.append(x) or x, ["DOUBLE"], "DOUBLE")
        x = connection.sql("select record(i) as a from range(3) as t(i)")
        for plan in (ferry.plan(x, "torch"), arrow.plan(x, "torch"), ferry.plan([x], "torch")):
            assert [(part.dtype, part.shape) for part in plan.parts] == [("float64", (0,))]
        assert not rows
        assert ferry.to(x, "torch")["a"].tolist() == rows == [0, 1, 2]
    assert len(ferry.to(Reader(), "torch")["a"]) == 100


def test_a_table_in_a_tree() -> None:
    result = ferry.to({"x": np.ones(2), "table": pa.table({"a": [1, 2]})}, "torch")
    assert result["table"]["a"].tolist() == [1, 2]


def test_nested_tables() -> None:
    table = pa.table({"point": pa.array([{"x": 1, "y": 2.5}, {"x": 3, "y": 4.5}])})
    assert ferry.to(table, "torch")["point"]["y"].tolist() == [2.5, 4.5]
    with pytest.raises(ferry.NotATensorError, match="1 struct is null"):
        ferry.to(pa.table({"point": pa.array([{"x": 1}, None])}), "torch")


def test_columns_that_do_not_exist_or_exist_twice() -> None:
    table = pa.table(COLUMNS)
    with pytest.raises(ferry.InvalidArgumentError, match="no column 'd'\nhint: pass some of a, b"):
        arrow.to(table, "numpy", columns=["a", "d"])
    twice = pa.table([[1], [2]], names=["a", "a"])
    with pytest.raises(ferry.InvalidArgumentError, match="two columns 'a'"):
        ferry.to(twice, "numpy")
    with pytest.raises(ferry.InvalidArgumentError, match="two columns 'a'"):
        arrow.to(twice, "numpy", columns=["a"])
    with pytest.raises(ferry.InvalidArgumentError, match="'a' twice"):
        arrow.to(table, "numpy", columns=["a", "a"])
    with pytest.raises(ferry.InvalidArgumentError, match="one column"):
        arrow.to(pa.array([1]), "numpy", columns=["a"])
    with pytest.raises(ferry.InvalidArgumentError, match="one column"):
        arrow.to(pa.array([1]), "numpy", stack=True)


def test_text_is_refused_only_where_it_is_asked_for() -> None:
    table = pa.table({"a": [1], "text": ["x"]})
    with pytest.raises(ferry.UnsupportedDTypeError, match="column 'text'"):
        ferry.to(table, "numpy")
    assert arrow.to(table, "numpy", columns=["a"])["a"].tolist() == [1]


@pytest.mark.parametrize(
    "option",
    [{"nulls": "drop"}, {"nulls": None}, {"ragged": "x"}, {"dictionary": ""}, {"temporal": "ns"}],
)
def test_invalid_options(option: dict[str, Any]) -> None:
    with pytest.raises(ferry.InvalidArgumentError, match="\nhint: pass "):
        arrow.to(pa.array([1]), "numpy", **option)


def test_memory_is_shared_and_released_with_the_last_user() -> None:
    values = np.arange(1000.0)
    gone = weakref.ref(values)
    column = pa.array(values)
    shared = ferry.to(column, "numpy")
    assert shared.__array_interface__["data"][0] == values.__array_interface__["data"][0]
    assert not shared.flags.writeable
    del values, column
    gc.collect()
    assert gone() is not None
    assert shared[999] == 999
    view = shared[5:]
    del shared
    gc.collect()
    assert view[0] == 5
    del view
    gc.collect()
    assert gone() is None


def test_immutable_memory_is_copied_for_a_framework_that_would_write_it() -> None:
    column = pa.array(np.arange(5.0))
    result = ferry.to(column, "torch")
    result.fill_(9)
    assert column.to_pylist() == [0, 1, 2, 3, 4]
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to(column, "torch", copy=False)


class Producer:
    """An object with one method of the interface."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    "result", [None, (), (1, 2), ("a",), pa.array([1]).__arrow_c_array__()[::-1]]
)
def test_objects_that_are_no_capsules(result: Any) -> None:
    with pytest.raises(ferry.InvalidTensorError, match="did not return Arrow capsules"):
        ferry.to(Producer(result), "numpy")


def test_a_producer_that_raises() -> None:
    with pytest.raises(ferry.FrameworkError, match="ValueError: no"):
        ferry.to(Producer(ValueError("no")), "numpy")


def test_a_capsule_is_consumed_once() -> None:
    producer = Producer(pa.array([1, 2]).__arrow_c_array__())
    assert ferry.to(producer, "numpy").tolist() == [1, 2]
    with pytest.raises(ferry.InvalidTensorError, match="released already"):
        ferry.to(producer, "numpy")


def test_a_stream_that_fails() -> None:
    def batches() -> Any:
        yield pa.record_batch({"a": [1]})
        raise ValueError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    with pytest.raises(ferry.FrameworkError, match="the disk is gone"):
        ferry.to(reader, "numpy")


def test_other_functions_accept_columns(tmp_path: Any) -> None:
    column, table = pa.array([1.5, 2.5]), pa.table({"a": [1, 2], "b": [True, False]})
    assert ferry.to_async(column, "torch").result().tolist() == [1.5, 2.5]
    assert ferry.to_async(table, "torch").result()["b"].tolist() == [True, False]
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert ferry.to_async({"x": [reader]}, "torch").result()["x"][0]["a"].tolist() == [1, 2]
    with ferry.publish(table) as ticket:
        assert ferry.attach(ticket)["a"].tolist() == [1, 2]
    with ferry.publish([table]) as ticket:
        assert ferry.attach(ticket)[0]["b"].tolist() == [True, False]
    out = np.zeros(2)
    assert ferry.to(column, "numpy", out=out) is out
    assert out.tolist() == [1.5, 2.5]
    ferry.save(tmp_path / "x.npy", column)
    assert ferry.load(tmp_path / "x.npy").tolist() == [1.5, 2.5]
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    ferry.save(tmp_path / "x.safetensors", {"step": 3, "tables": [table, reader]})
    loaded = ferry.load(tmp_path / "x.safetensors", nested=True)
    assert loaded["step"] == 3
    assert [part["b"].tolist() for part in loaded["tables"]] == [[True, False]] * 2
    ferry.save(tmp_path / "x.npz", {"a": pa.chunked_array([[1], [2]])})
    assert ferry.load(tmp_path / "x.npz")["a"].tolist() == [1, 2]
    doubled = ferry.via("torch")(lambda x: x * 2)(column)
    assert np.asarray(doubled).tolist() == [3.0, 5.0]


def test_the_default_type_does_not_join_types() -> None:
    table = pa.table({"i": pa.array([1, 2], pa.int32()), "f": [0.5, 1e10]})
    with pytest.raises(ferry.InvalidArgumentError, match="int32 and float64"):
        arrow.to(table, "numpy", stack=True, dtype="default")


def test_pandas_is_not_read_through_arrow() -> None:
    class Frame(pd.DataFrame):
        pass

    class Column(pd.Series):
        pass

    for to in (ferry.to, arrow.to):
        assert np.isnan(to(Column([1.5, np.nan]), "numpy")[1])
        assert np.isnan(to(Frame({"a": [1.5, np.nan]}), "numpy")["a"][1])


@pytest.mark.parametrize("source", [np.zeros(3), {"a": [1]}, [1], None, "text"])
def test_objects_without_the_interface(source: Any) -> None:
    with pytest.raises(ferry.NotATensorError, match="__arrow_c_array__"):
        arrow.to(source, "numpy")


def test_a_query_that_has_not_run() -> None:
    query = pl.LazyFrame({"a": [1]})
    with pytest.raises(ferry.NotATensorError, match=r"hint: pass x\.collect\(\)"):
        ferry.to(query, "numpy")
    assert ferry.to(query.collect(), "numpy")["a"].tolist() == [1]


def test_columns_of_nulls_and_of_unknown_types_do_not_block_others() -> None:
    frame = pl.DataFrame({"a": [1], "n": [None], "w": pl.Series([1], dtype=pl.Int128)})
    assert arrow.to(frame, "numpy", columns=["a"])["a"].tolist() == [1]
    with pytest.raises(ferry.UnsupportedDTypeError, match="column 'w'"):
        arrow.to(frame, "numpy", columns=["w"])
    with pytest.raises(ferry.UnsupportedDTypeError, match="column 'n'"):
        ferry.to(frame, "numpy")


def test_dictionaries_in_a_matrix() -> None:
    values = RNG.integers(0, 50, (3000, 4))
    table = pa.table({str(n): pa.array(values[:, n]).dictionary_encode() for n in range(4)})
    assert np.array_equal(arrow.to(table, "numpy", stack=True), values)
