"""Columns and tables of pandas: every kind of column, with missing values, in every framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.introspect import FRAMEWORKS, INSPECTORS, check_tensor, x64

import tensorferry as ferry
from tensorferry import arrow

# float64 does not hold this one.
ODD = 2**53 + 1


@pytest.fixture(autouse=True)
def x64_enabled() -> Iterator[None]:
    with x64(True):
        yield


COLUMNS: dict[str, tuple[pd.Series, np.ndarray]] = {
    "int64": (pd.Series([ODD, -7]), np.array([ODD, -7])),
    "float64 with NaN": (pd.Series([1.5, np.nan]), np.array([1.5, np.nan])),
    "bool": (pd.Series([True, False]), np.array([True, False])),
    "Int64": (pd.Series([ODD, 7], dtype="Int64"), np.array([ODD, 7])),
    "Float32": (pd.Series([1.5, 2], dtype="Float32"), np.array([1.5, 2], np.float32)),
    "boolean": (pd.Series([True, False], dtype="boolean"), np.array([True, False])),
    "int32[pyarrow]": (pd.Series([3, 4], dtype="int32[pyarrow]"), np.array([3, 4], np.int32)),
    "bool[pyarrow]": (pd.Series([True, False], dtype="bool[pyarrow]"), np.array([True, False])),
    "category": (pd.Series([ODD, 5, ODD], dtype="category"), np.array([ODD, 5, ODD])),
}


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column(name: str, target: str) -> None:
    series, values = COLUMNS[name]
    check_tensor(target, ferry.to(series, target), values)
    check_tensor(target, arrow.to(series, target), values)
    assert ferry.plan(series, target).shape == values.shape


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_a_table_is_a_dict_of_its_columns(target: str) -> None:
    # pandas fills up shorter columns with nulls.
    frame = pd.DataFrame({name: series[:2] for name, (series, _) in COLUMNS.items()})
    result = ferry.to(frame, target)
    assert list(result) == list(COLUMNS)
    for name, (_, values) in COLUMNS.items():
        check_tensor(target, result[name], values[:2])
    plan = ferry.plan(frame, target)
    assert [part.name for part in plan.parts] == [f"[{name!r}]" for name in COLUMNS]


def test_columns_of_numpy_are_shared() -> None:
    frame = pd.DataFrame({"a": np.arange(5.0), "b": np.arange(5)})
    result = ferry.to(frame, "numpy")
    for name in frame:
        assert np.shares_memory(result[name], frame[name].to_numpy())
        assert result[name].flags.writeable == frame[name].to_numpy().flags.writeable


def test_the_index_is_not_a_column() -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index([10, 20], name="key"))
    assert list(ferry.to(frame, "numpy")) == ["a"]
    assert list(arrow.to(frame, "numpy", nulls=0)) == ["a"]


MISSING = {
    "Int64": (pd.Series([ODD, None, 3], dtype="Int64"), np.int64),
    "UInt8": (pd.Series([1, None, 3], dtype="UInt8"), np.uint8),
    "Float32": (pd.Series([1, None, 3], dtype="Float32"), np.float32),
    "boolean": (pd.Series([True, None, True], dtype="boolean"), np.bool_),
    "int64[pyarrow]": (pd.Series([ODD, None, 3], dtype="int64[pyarrow]"), np.int64),
    "category": (pd.Series([5, None, 3], dtype="category"), np.float64),
}


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("name", MISSING)
def test_missing_values(name: str, target: str) -> None:
    series, dtype = MISSING[name]
    dtype = series.cat.categories.dtype if name == "category" else dtype
    expected = series.fillna(series[2]).to_numpy(dtype)
    frame = pd.DataFrame({"c": series})
    with pytest.raises(ferry.NotATensorError, match=r"1 null.*\nhint: pass nulls="):
        ferry.to(series, target)
    with pytest.raises(ferry.NotATensorError, match="column 'c'"):
        ferry.to(frame, target)
    check_tensor(target, arrow.to(series, target, nulls=expected[2].item()), expected)
    check_tensor(target, arrow.to(frame, target, nulls=expected[2].item())["c"], expected)
    values, mask = arrow.to(frame, target, nulls="mask")["c"]
    check_tensor(target, mask, np.array([True, False, True]))
    look = INSPECTORS[target]
    assert look.dtype(values) == np.dtype(dtype).name


def test_nan_is_no_null() -> None:
    series = pd.Series([1.0, np.nan])
    assert np.isnan(arrow.to(series, "numpy", nulls=0)[1])
    values, mask = arrow.to(series, "numpy", nulls="mask")
    assert mask.tolist() == [True, True]
    assert np.isnan(values[1])


def test_a_mask_is_bool_whatever_the_type_of_the_values() -> None:
    for series in (pd.Series([1, 2]), pd.Series([1, None], dtype="Int64")):
        values, mask = arrow.to(series, "numpy", nulls="mask", dtype="float32")
        assert (values.dtype, mask.dtype) == (np.float32, bool)


def test_times() -> None:
    times = pd.Series(pd.to_datetime(["2020-01-01", None])).astype("datetime64[us]")
    with pytest.raises(ferry.UnsupportedDTypeError, match='temporal="integer"'):
        ferry.to(times, "numpy")
    with pytest.raises(ferry.NotATensorError, match="1 null"):
        arrow.to(times, "numpy", temporal="integer")
    result = arrow.to(times, "numpy", temporal="integer", nulls=-1)
    assert result.tolist() == [1577836800000000, -1]
    zoned = times[:1].dt.tz_localize("Europe/Berlin")
    assert arrow.to(zoned, "numpy", temporal="integer").tolist() == [1577833200000000]
    plan = arrow.plan(zoned, "numpy", temporal="integer")
    assert "the integers count microseconds" in plan.notes
    spans = pd.Series(pd.to_timedelta([1, 2], unit="s")).astype("timedelta64[s]")
    assert arrow.to(spans, "numpy", temporal="integer").tolist() == [1, 2]


def test_categories() -> None:
    labels = pd.Series(["a", "b", None, "a"], dtype="category")
    with pytest.raises(ferry.UnsupportedDTypeError, match='dictionary="codes"'):
        ferry.to(labels, "numpy")
    codes = arrow.to(labels, "numpy", dictionary="codes", nulls=-1)
    assert codes.tolist() == [0, 1, -1, 0]


@pytest.mark.parametrize(
    "series",
    [
        pd.Series(["a", "b"]),
        pd.Series(["a", "b"], dtype="string"),
        pd.Series([1, "a"], dtype=object),
        pd.Series([pd.Period("2020")]),
        pd.Series([pd.Interval(0, 1)]),
        pd.Series(pd.arrays.SparseArray([0, 1])),
        pd.Series(["a"], dtype="string[pyarrow]"),
    ],
    ids=lambda series: str(series.dtype),
)
def test_columns_without_a_tensor(series: pd.Series) -> None:
    for x in (series, pd.DataFrame({"c": series})):
        with pytest.raises(ferry.UnsupportedDTypeError) as caught:
            ferry.to(x, "numpy")
        assert caught.value.hint
        assert ("column 'c'" in str(caught.value)) == (x.ndim == 2)


MATRICES: dict[str, pd.DataFrame] = {
    "one block": pd.DataFrame({"a": [1.0, 2, 3], "b": [4.0, 5, 6]}),
    "rows": pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "b"]),
    "some columns": pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=list("abcd"))[["a", "c"]],
    "several blocks": pd.concat(
        [pd.DataFrame({"a": [1.0, 2, 3]}), pd.DataFrame({"b": [4.0, 5, 6]})], axis=1
    ),
    "reversed": pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "b"])[::-1],
    "masked": pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}, dtype="Float64"),
    "one column": pd.DataFrame({"a": [1.0, 2, 3]}),
    "no rows": pd.DataFrame({"a": [1.0], "b": [2.0]})[:0],
}


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix(name: str, target: str) -> None:
    frame = MATRICES[name]
    check_tensor(
        target, arrow.to(frame, target, stack=True), np.ascontiguousarray(frame.to_numpy(float))
    )
    result = arrow.to(frame, target, stack=True, dtype="float32")
    check_tensor(target, result, np.ascontiguousarray(frame.to_numpy(np.float32)))


def test_a_matrix_of_one_block_is_shared() -> None:
    frame = pd.DataFrame(np.arange(600.0).reshape(200, 3))
    result = arrow.to(frame, "numpy", stack=True)
    assert np.shares_memory(result, frame.to_numpy())
    del frame
    assert np.array_equal(result, np.arange(600.0).reshape(200, 3))


def test_a_matrix_of_several_types_and_nulls() -> None:
    frame = pd.DataFrame({"a": pd.Series([1, None], dtype="Int64"), "b": [0.5, 1.5]})
    with pytest.raises(ferry.InvalidArgumentError, match="a matrix has one"):
        arrow.to(frame, "numpy", stack=True, nulls=0)
    with pytest.raises(ferry.NotATensorError, match="column 'a'"):
        arrow.to(frame, "numpy", stack=True)
    result = arrow.to(frame, "numpy", stack=True, nulls=-1, dtype="float32")
    assert result.tolist() == [[1, 0.5], [-1, 1.5]]
    with pytest.raises(ferry.InvalidArgumentError, match="cannot be combined"):
        arrow.to(frame, "numpy", stack=True, nulls="mask")


@pytest.mark.parametrize("dtype", ["Int8", "int8[pyarrow]"])
def test_nulls_of_a_matrix_have_its_type(dtype: str) -> None:
    frame = pd.DataFrame({"a": pd.Series([1, None, 3], dtype=dtype), "b": [0, 1, 2]})
    result = arrow.to(frame, "numpy", stack=True, nulls="nan", dtype="float32")
    assert np.array_equal(result[:, 0], [1, np.nan, 3], equal_nan=True)
    result = arrow.to(frame, "numpy", stack=True, nulls=1000, dtype="int32")
    assert result[:, 0].tolist() == [1, 1000, 3]
    with pytest.raises(ferry.InvalidArgumentError, match="nulls is 1000, which int8 does not have"):
        arrow.to(frame["a"], "numpy", nulls=1000)


def test_a_matrix_is_one_conversion() -> None:
    chunks = pa.chunked_array([[1, 2], [3]])
    frame = pd.DataFrame(
        {"a": pd.Series(pd.arrays.ArrowExtensionArray(chunks)), "b": pd.array([4, 5, 6], "Int64")}
    )
    with ferry.trace() as trips:
        plan = arrow.plan(frame, "numpy", stack=True)
    assert not trips
    with ferry.trace() as trips:
        assert arrow.to(frame, "numpy", stack=True).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert [trip.plan.steps for trip in trips] == [plan.steps]


def test_labels_of_several_levels() -> None:
    labels = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    frame = pd.DataFrame([[1, 2]], columns=labels)
    with pytest.raises(ferry.InvalidArgumentError, match=r"such as \('a', 'x'\)"):
        arrow.to(frame, "numpy", columns=["a"])
    assert arrow.to(frame, "numpy", columns=[("a", "y")])["a", "y"].tolist() == [2]


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_decoded_categories_are_a_copy(target: str) -> None:
    column = pd.Series([10, 20, 10], dtype="category")
    for x in (column, [column], pd.DataFrame({"a": column})):
        plan = ferry.plan(x, target)
        with ferry.trace() as trips:
            ferry.to(x, target)
        assert [(trip.plan.action, trip.bytes_moved) for trip in trips] == [("copy", 24)]
        assert (plan.action, plan.bytes_moved) == ("copy", 24)
        with pytest.raises(ferry.CopyRequiredError):
            ferry.to(x, target, copy=False)


def test_categories_that_are_all_null() -> None:
    series = pd.Series(pd.Categorical([None, None], categories=pd.Index([], dtype="int64")))
    assert arrow.to(series, "numpy", nulls=-1).tolist() == [-1, -1]


def test_labels() -> None:
    frame = pd.DataFrame({0: [1, 2], ("x", 1): [3, 4]})
    assert list(ferry.to(frame, "numpy")) == [0, ("x", 1)]
    assert list(arrow.to(frame, "numpy", columns=[("x", 1)])) == [("x", 1)]
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(ferry.InvalidArgumentError, match="two columns are 'a'"):
        ferry.to(twice, "numpy")
    with pytest.raises(ferry.InvalidArgumentError, match="no column 'z'\nhint: pass some of a, b"):
        arrow.to(pd.DataFrame({"a": [1], "b": [2]}), "numpy", columns=["z"])
    with pytest.raises(ferry.InvalidArgumentError, match="one column"):
        arrow.to(pd.Series([1]), "numpy", columns=["a"])


def test_an_empty_table() -> None:
    assert ferry.to(pd.DataFrame(), "numpy") == {}
    with pytest.raises(ferry.InvalidArgumentError, match="no columns"):
        arrow.to(pd.DataFrame(), "numpy", stack=True)


def test_in_other_functions(tmp_path: Any) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    tree = {"table": frame, "x": np.ones(2)}
    assert ferry.to(tree, "torch")["table"]["b"].tolist() == [0.5, 1.5]
    ferry.save(tmp_path / "x.npz", frame)
    assert ferry.load(tmp_path / "x.npz")["a"].tolist() == [1, 2]
    with ferry.publish(frame) as ticket:
        assert ferry.attach(ticket)["b"].tolist() == [0.5, 1.5]
    assert ferry.to_async(frame, "torch").result()["a"].tolist() == [1, 2]


def test_subclasses() -> None:
    class Prices(pd.Series):
        pass

    assert ferry.to(Prices([1.5, 2.5]), "torch").tolist() == [1.5, 2.5]
