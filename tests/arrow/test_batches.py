"""Batches of rows: from tables, streams, iterables and datasets, across the borders of chunks."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import operator
import signal
from collections.abc import Iterator
from typing import Any

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
import torch
from support.introspect import FRAMEWORKS, INSPECTORS, TYPES, x64

import tensorferry as ferry
from tensorferry import arrow

RNG = np.random.default_rng(0)
ROWS = 53
VALUES: dict[str, np.ndarray] = {
    "a": RNG.integers(-(2**40), 2**40, ROWS),
    "b": RNG.random(ROWS, dtype=np.float32),
    "c": RNG.random(ROWS) < 0.5,
}
TABLE = pa.table(VALUES)


@pytest.fixture(autouse=True)
def x64_enabled() -> Iterator[None]:
    with x64(True):
        yield


def slices(*sizes: int) -> list[pa.Table]:
    """The table in slices of some sizes, and the rest of it."""
    ends = list(itertools.accumulate(sizes))
    return [TABLE.slice(end - size, size) for size, end in zip(sizes, ends, strict=True)] + [
        TABLE.slice(ends[-1])
    ]


def sources() -> dict[str, Any]:
    batches = TABLE.to_batches(7)
    return {
        "table": TABLE,
        "record batch": TABLE.to_batches()[0],
        "chunks": pa.concat_tables(slices(1, 20, 0, 5)),
        "reader": pa.RecordBatchReader.from_batches(TABLE.schema, batches),
        "polars": pl.concat([pl.DataFrame(VALUES)[:40], pl.DataFrame(VALUES)[40:]], rechunk=False),
        "DuckDB": duckdb.from_arrow(TABLE),
        "pandas": pd.DataFrame(VALUES),
        "list of tables": slices(3, 0, 30),
        "generator of record batches": (batch for batch in batches),
        "iterable of readers": (
            pa.RecordBatchReader.from_batches(TABLE.schema, part.to_batches(4))
            for part in slices(9, 9)
        ),
        "dataset": datasets.Dataset(TABLE),
        "iterable dataset": datasets.Dataset(TABLE).to_iterable_dataset(),
    }


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 20, ROWS, 100])
@pytest.mark.parametrize("name", sources())
def test_every_source(name: str, rows: int, drop_last: bool) -> None:
    stop = ROWS - ROWS % rows if drop_last else ROWS
    found = list(arrow.batches(sources()[name], rows, "numpy", drop_last=drop_last))
    assert len(found) == -(-stop // rows)
    for start, batch in zip(range(0, stop, rows), found, strict=True):
        assert list(batch) == list(VALUES)
        for column, values in VALUES.items():
            assert batch[column].dtype == values.dtype
            assert np.array_equal(batch[column], values[start : min(start + rows, stop)])


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_every_framework(target: str) -> None:
    look = INSPECTORS[target]
    for number, batch in enumerate(arrow.batches(slices(11, 13), 10, target)):
        for column, values in VALUES.items():
            expected = values[10 * number : 10 * number + 10]
            assert isinstance(batch[column], TYPES[target])
            assert look.values(batch[column]) == expected.tobytes()


def test_columns() -> None:
    column = pa.chunked_array([[1, 2, 3], [4], [5, 6, 7]])
    assert [b.tolist() for b in arrow.batches(column, 2, "torch")] == [[1, 2], [3, 4], [5, 6], [7]]
    series = pd.Series([1.5, np.nan, 3.5])
    assert np.isnan(next(arrow.batches(series, 2, "numpy"))[1])


def test_options() -> None:
    matrix = np.stack([VALUES["b"], VALUES["a"]], axis=1).astype(np.float32)
    for x in (slices(11, 13), pd.DataFrame(VALUES), datasets.Dataset(TABLE)):
        options: Any = {"columns": ["b", "a"], "stack": True, "dtype": "float32"}
        found = np.concatenate(list(arrow.batches(x, 10, "numpy", **options)))
        assert np.array_equal(found, matrix)
    table = pa.table({"x": [1, None, 3], "l": [[1], [2, 3], []]})
    first, second = arrow.batches(table, 2, "numpy", nulls=-1, ragged="offsets")
    assert first["x"].tolist() == [1, -1]
    assert [part.tolist() for part in second["l"]] == [[], [0, 0]]
    first, second = arrow.batches(table, 2, "numpy", nulls="mask", ragged="dense", pad=0)
    assert [part.tolist() for part in first["l"]] == [
        [[1, 0], [2, 3]],
        [[True, False], [True, True]],
    ]
    first, second = arrow.batches(table["l"], 2, "torch", ragged="native")
    assert [row.tolist() for row in first.unbind()] == [[1], [2, 3]]
    assert isinstance(
        next(arrow.batches(table["l"], 2, "tensorflow", ragged="native")), tf.RaggedTensor
    )


def test_a_batch_within_a_chunk_is_shared() -> None:
    values = np.arange(100.0)
    column = pa.chunked_array([pa.array(values)])
    for number, batch in enumerate(arrow.batches(column, 25, "numpy")):
        assert np.shares_memory(batch, values[25 * number : 25 * number + 25])
    writable = next(arrow.batches(column, 25, "torch"))
    writable.fill_(-1)
    assert values[0] == 0


def test_datasets_keep_their_order() -> None:
    dataset = datasets.Dataset(TABLE).shuffle(seed=1).select(range(5, 45))
    expected = dataset.with_format("numpy")[:]["a"]
    found = np.concatenate([batch["a"] for batch in arrow.batches(dataset, 7, "numpy")])
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, VALUES["a"][5:45])
    assert np.array_equal(arrow.to(dataset, "numpy")["a"], expected)
    formatted = dataset.with_format("torch", columns=["b"])
    assert list(next(arrow.batches(formatted, 7, "numpy"))) == ["b"]


def test_images_of_a_dataset() -> None:
    images = RNG.random((6, 4, 5), dtype=np.float32)
    features = datasets.Features({"image": datasets.Array2D((4, 5), "float32")})
    dataset = datasets.Dataset.from_dict({"image": list(images)}, features=features)
    found = [batch["image"] for batch in arrow.batches(dataset, 4, "torch", ragged="dense")]
    assert torch.equal(torch.cat(found), torch.from_numpy(images))


def test_a_stream_is_read_no_further_than_needed() -> None:
    read: list[int] = []

    def produce() -> Iterator[pa.RecordBatch]:
        for number in itertools.count():
            read.append(number)
            yield pa.record_batch({"x": np.full(10, number)})

    schema = pa.schema({"x": pa.int64()})
    for x in (pa.RecordBatchReader.from_batches(schema, produce()), produce()):
        read.clear()
        batches = arrow.batches(x, 25, "numpy")
        assert read == []
        assert next(batches)["x"].tolist() == [0] * 10 + [1] * 10 + [2] * 5
        assert read == [0, 1, 2]
        assert next(batches)["x"].tolist() == [2] * 5 + [3] * 10 + [4] * 10
        assert read == [0, 1, 2, 3, 4]


def test_chunks_are_released_when_the_next_batch_is_read() -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    chunk = 8 * 100_000

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            yield pa.record_batch({"x": pa.compute.add(pa.array(np.arange(100_000)), number)})

    batches = arrow.batches(produce(), 100_000, "torch")
    for _ in batches:
        assert pa.total_allocated_bytes() - before <= 3 * chunk
    del batches
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_batches_that_are_left_early_release_their_chunks() -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    table = pa.table({"x": pa.compute.add(pa.array(np.arange(1000)), 1)})
    batches = arrow.batches(table, 10, "numpy")
    first = next(batches)["x"]
    del table, batches
    gc.collect()
    assert first.tolist() == list(range(1, 11))
    del first
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_errors_name_what_is_wrong() -> None:
    assert len(list(arrow.batches(TABLE, 2**70, "numpy"))) == 1
    for rows in (0, -1, 2.5, None, True, np.array([1, 2])):
        with pytest.raises(ferry.InvalidArgumentError, match="rows is"):
            arrow.batches(TABLE, rows, "numpy")  # type: ignore[arg-type]
    with pytest.raises(ferry.NotATensorError, match="__arrow_c_array__"):
        arrow.batches(5, 2, "numpy")
    with pytest.raises(ferry.NotATensorError, match=r"of type numpy\.ndarray"):
        list(arrow.batches([np.zeros(3)], 2, "numpy"))
    with pytest.raises(ferry.InvalidArgumentError, match="objects of one schema"):
        list(arrow.batches([TABLE, TABLE.select(["a"])], 2, "numpy"))
    with pytest.raises(ferry.InvalidArgumentError, match="no column 'z'"):
        next(arrow.batches(TABLE, 2, "numpy", columns=["z"]))
    with pytest.raises(ferry.UnsupportedError, match="is for PyTorch and TensorFlow"):
        arrow.batches(TABLE, 2, "numpy", ragged="native")
    assert list(arrow.batches([], 2, "numpy")) == []
    assert list(arrow.batches(TABLE.slice(0, 0), 2, "numpy")) == []


def test_a_table_of_another_schema_ends_the_batches() -> None:
    """Its chunks must not be read by the type of the first one."""
    empty = pa.array([], pa.list_(pa.int64(), 0))
    wide = pa.array([[1] * 1000] * 5000, pa.list_(pa.int64(), 1000))
    for objects, options in (
        ([empty, wide], {"nulls": "mask"}),
        ([pa.array([[1, 2], [3]]), pa.array(np.arange(3000))], {"ragged": "dense", "pad": 0}),
        ([pa.table({"a": [1]}), pa.table({"a": [0.5], "b": [1]})], {}),
    ):
        batches = arrow.batches(objects, 5000, "numpy", **options)
        with pytest.raises(ferry.InvalidArgumentError, match="other columns than the first one"):
            next(batches)
        assert list(batches) == []


def test_the_names_of_elements_are_not_part_of_the_schema() -> None:
    named = pa.array([[1]], pa.list_(pa.field("element", pa.int64())))
    (batch,) = arrow.batches([named, pa.array([[2, 3]])], 2, "numpy", ragged="offsets")
    assert [part.tolist() for part in batch] == [[1, 2, 3], [0, 1, 3]]


def test_codes_of_different_dictionaries() -> None:
    one = pa.DictionaryArray.from_arrays([0, 1], ["a", "b"])
    other = pa.DictionaryArray.from_arrays([0, 1], ["b", "a"])
    batches = arrow.batches([one, other], 2, "numpy", dictionary="codes")
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(ferry.UnsupportedDTypeError, match="different dictionaries"):
        next(batches)
    same = arrow.batches(pa.chunked_array([one, one]), 3, "numpy", dictionary="codes")
    assert [batch.tolist() for batch in same] == [[0, 1, 0], [1]]


def test_an_interrupt_in_the_producer_is_an_interrupt() -> None:
    def produce() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise KeyboardInterrupt

    def reader() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), produce())

    with pytest.raises(KeyboardInterrupt):
        list(arrow.batches(reader(), 1, "numpy"))
    with pytest.raises(KeyboardInterrupt):
        ferry.to(reader(), "numpy")


def test_columns_of_a_dataset() -> None:
    dataset = datasets.Dataset(TABLE)
    for x in (dataset, dataset.to_iterable_dataset()):
        assert list(next(arrow.batches(x, 7, "numpy", columns=["c", "a"]))) == ["c", "a"]
        with pytest.raises(ferry.InvalidArgumentError, match="no column 'z'"):
            next(arrow.batches(x, 7, "numpy", columns=["z"]))
    with pytest.raises(ferry.NotATensorError, match=r"hint: use ferry\.arrow\.to\(x, framework\)"):
        ferry.to(dataset, "numpy")


def test_nulls_raise_when_their_batch_is_reached() -> None:
    batches = arrow.batches(pa.table({"x": [1, 2, None]}), 2, "numpy")
    assert next(batches)["x"].tolist() == [1, 2]
    with pytest.raises(ferry.NotATensorError, match="column 'x': the column has 1 null"):
        next(batches)


def test_a_stream_that_fails() -> None:
    def produce() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1, 2]})
        raise ValueError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), produce())
    batches = arrow.batches(reader, 2, "numpy")
    assert next(batches)["a"].tolist() == [1, 2]
    with pytest.raises(ferry.FrameworkError, match="the disk is gone"):
        next(batches)
    with pytest.raises(ValueError, match="the disk is gone"):
        list(arrow.batches(produce(), 2, "numpy"))
    batches = arrow.batches(produce(), 3, "numpy")
    with pytest.raises(ValueError, match="the disk is gone"):
        next(batches)
    assert list(batches) == [], "rows before the error are not a batch"


def test_one_thread_reads_at_a_time() -> None:
    def produce() -> Iterator[pa.RecordBatch]:
        with pytest.raises(ferry.InvalidArgumentError, match="another thread is reading"):
            next(batches)
        yield pa.record_batch({"a": [1, 2]})

    batches = arrow.batches(produce(), 2, "numpy")
    assert [batch["a"].tolist() for batch in batches] == [[1, 2]]


def test_an_interrupt_is_heard_between_chunks() -> None:
    class HeardError(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise HeardError

    # No Python runs while the chunks are read: the signal is sent by a C function.
    send = functools.partial(ctypes.CDLL(None)["raise"], signal.SIGINT)
    tables = iter(slices(1, 1, 1))
    sent = map(operator.itemgetter(1), zip(map(send, itertools.repeat(0)), tables, strict=False))
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(HeardError):
            next(arrow.batches(sent, 1000, "numpy"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(list(tables)) == 3


class Stream(ctypes.Structure):
    """The struct of the Arrow C stream interface."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class OpenStream:
    """A stream of another one's schema, with one callback replaced."""

    def __init__(self, callback: str, function: Any) -> None:
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
        self.capsule = TABLE.__arrow_c_stream__()
        pointer = api.PyCapsule_GetPointer(self.capsule, b"arrow_array_stream")
        stream = Stream.from_address(pointer)
        setattr(stream, callback, ctypes.cast(function, ctypes.c_void_p).value)
        # The texts of the other stream do not describe the errors of this one.
        stream.get_last_error = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.capsule


def test_the_producer_runs_without_the_gil() -> None:
    # The callback returns 1 if the thread holds the GIL, which is an error; 0 ends the stream.
    holds_the_gil = ctypes.pythonapi.PyGILState_Check
    assert list(arrow.batches(OpenStream("get_next", holds_the_gil), 2, "numpy")) == []
    assert ferry.to(OpenStream("get_next", holds_the_gil), "numpy")["a"].shape == (0,)
    with pytest.raises(ferry.InvalidTensorError, match="ArrowSchema is released already"):
        arrow.batches(OpenStream("get_schema", holds_the_gil), 2, "numpy")
    always = ctypes.CDLL(None).abs  # of a pointer: not 0
    with pytest.raises(ferry.FrameworkError, match="get_next of the Arrow stream failed"):
        list(arrow.batches(OpenStream("get_next", always), 2, "numpy"))


def test_an_iterable_dataset_is_read_in_batches() -> None:
    with pytest.raises(ferry.UnsupportedError, match=r"hint: use ferry\.arrow\.batches"):
        arrow.to(datasets.Dataset(TABLE).to_iterable_dataset(), "numpy")
