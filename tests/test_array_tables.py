"""Tables, labelled arrays and arrays in pieces: pandas, polars, pyarrow, xarray, Dask, h5py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import h5py
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sparse
import torch
import xarray as xr
from matrix.check import said
from support.introspect import FRAMEWORKS, INSPECTORS, TYPES, check_tensor, x64
from support.refusals import refused, refused_everywhere

import tensorferry as ferry

# float64 does not hold this one.
ODD = 2**53 + 1
INTS = np.array([ODD, -ODD, 7], np.int64)
FLOATS = np.array([1.5, -0.0, 3e38], np.float32)
GRID = np.asfortranarray(np.arange(6, dtype=np.int64).reshape(3, 2) + ODD)
STEP = ("convert", "converted by its own library")


# What shares its memory: the object, and the same values as an array of NumPy's.
SHARED: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
    "pandas float Series": (lambda: pd.Series(FLOATS), FLOATS),
    "pandas integer Series": (lambda: pd.Series(INTS), INTS),
    "pandas bool Series": (lambda: pd.Series([True, False]), np.array([True, False])),
    "pandas Int64 Series": (lambda: pd.Series(INTS, dtype="Int64"), INTS),
    "pandas Float32 Series": (lambda: pd.Series(FLOATS, dtype="Float32"), FLOATS),
    "pandas boolean Series": (
        lambda: pd.Series([True, False], dtype="boolean"),
        np.array([True, False]),
    ),
    "pandas Int64 array": (lambda: pd.array(INTS, dtype="Int64"), INTS),
    "pandas Index": (lambda: pd.Index(INTS), INTS),
    "polars float Series": (lambda: pl.Series(FLOATS), FLOATS),
    "polars integer Series": (lambda: pl.Series(INTS), INTS),
    "polars Array Series": (
        lambda: pl.Series(GRID.tolist(), dtype=pl.Array(pl.Int64, 2)),
        np.ascontiguousarray(GRID),
    ),
    "pyarrow array": (lambda: pa.array(INTS), INTS),
    "xarray float": (lambda: xr.DataArray(FLOATS), FLOATS),
    "xarray integer": (lambda: xr.DataArray(GRID, dims=("x", "y")), GRID),
    "xarray Variable": (lambda: xr.Variable("x", INTS), INTS),
}

# What would be converted, and is refused.
REFUSED: dict[str, Callable[[], Any]] = {
    "pandas Int64 array with NA": lambda: pd.array([ODD, None], dtype="Int64"),
    "pandas Float64 array with NA": lambda: pd.array([1.5, None], dtype="Float64"),
    "pandas boolean array with NA": lambda: pd.array([True, None], dtype="boolean"),
    "pandas Arrow array": lambda: pd.array([ODD, 7], dtype="int64[pyarrow]"),
    "pandas Arrow array with NA": lambda: pd.array([ODD, None], dtype="int64[pyarrow]"),
    "xarray of Int64 with NA": lambda: xr.DataArray(pd.Series([ODD, None], dtype="Int64")),
}


@pytest.fixture(autouse=True)
def x64_enabled() -> Iterator[None]:
    with x64(True):
        yield


@pytest.fixture
def computed() -> Iterator[list[int]]:
    """One entry for each time that Dask computes a graph."""
    calls: list[int] = []

    def compute(graph: Any, keys: Any, **options: Any) -> Any:
        calls.append(1)
        return dask.get(graph, keys, **options)

    with dask.config.set(scheduler=compute):
        yield calls


def carried(source: Any, target: str, **wishes: Any) -> tuple[Any, ferry.Plan]:
    """The result, once the trip was what the plan says."""
    plan = ferry.plan(source, target, **wishes)
    with ferry.trace() as trips:
        result = ferry.to(source, target, **wishes)
    assert [said(trip.plan) for trip in trips] == [said(plan)]
    assert isinstance(result, TYPES[target])
    return result, plan


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("name", SHARED)
def test_what_shares_its_memory(name: str, target: str) -> None:
    make, values = SHARED[name]
    source = make()
    result, plan = carried(source, target)
    check_tensor(target, result, values)
    assert STEP not in plan.steps
    memory = np.asarray(source)
    address = memory.__array_interface__["data"][0]
    assert plan.shares == (INSPECTORS[target].address(result) == address)
    if target == "numpy":
        assert plan.shares
        assert result.flags.writeable == memory.flags.writeable
        assert ferry.to(source, target, copy=False).__array_interface__["data"][0] == address
    if target in ("torch", "paddle"):
        assert plan.shares == memory.flags.writeable, "read-only memory is not given away"
        if not plan.shares:
            refused(
                ferry.CopyRequiredError, ValueError, lambda: ferry.to(source, target, copy=False)
            )
    copy, plan = carried(source, target, copy=True)
    assert not plan.shares
    check_tensor(target, copy, values)
    assert INSPECTORS[target].address(copy) != address
    check_tensor("numpy", np.asarray(source), values)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_conversion_could_change_is_refused(name: str) -> None:
    source = REFUSED[name]()
    error = refused_everywhere(ferry.NotATensorError, TypeError, source)
    assert "a conversion may change dtypes and nulls" in str(error)
    assert ("to_numpy" in error.hint) == hasattr(source, "to_numpy")
    for wishes in ({"copy": True}, {"copy": False}, {"dtype": "float64"}, {"writable": True}):
        refused(ferry.NotATensorError, TypeError, lambda w=wishes: ferry.to(source, "torch", **w))


def test_the_hint_leads_to_the_values() -> None:
    frame = pl.DataFrame({"a": [ODD, None], "b": [1, 2]})
    values = frame.fill_null(0).to_numpy()
    assert ferry.to(values, "torch").tolist() == [[ODD, 1], [0, 2]]
    series = pd.Series([ODD, None], dtype="Int64")
    assert ferry.to(series.fillna(0).to_numpy("int64"), "torch").tolist() == [ODD, 0]


def test_sparse_arrays_of_pandas() -> None:
    sparse = pd.arrays.SparseArray([0, ODD], fill_value=0)
    refused_everywhere(ferry.UnsupportedDTypeError, TypeError, sparse)


@pytest.mark.parametrize(
    "source",
    [
        pd.Series([1, "a"], dtype=object),
        pd.Series(np.array(["2020"], "M8[s]")),
        xr.DataArray(np.array([1, None], object)),
        xr.DataArray(np.array(["2020"], "M8[s]")),
        da.from_array(np.array([1, None], object), chunks=1),
    ],
    ids=["objects", "dates", "xarray objects", "xarray dates", "dask objects"],
)
def test_types_that_are_not_numbers(source: Any) -> None:
    refused_everywhere(ferry.UnsupportedDTypeError, TypeError, source)


def test_an_xarray_dataset_is_not_one_array() -> None:
    dataset = xr.Dataset({"a": ("x", INTS)})
    refused_everywhere(ferry.NotATensorError, TypeError, dataset)
    assert ferry.to(dataset["a"], "torch").tolist() == INTS.tolist()


def test_xarray_over_another_library_is_shared() -> None:
    inside = jnp.arange(3.0)
    assert carried(xr.DataArray(inside), "numpy")[1].shares


def dask_array() -> Any:
    return da.from_array(GRID, chunks=(2, 1)) + 1


def labelled() -> Any:
    return xr.DataArray(dask_array(), dims=("x", "y"))


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("make", [dask_array, labelled, lambda: labelled().variable])
def test_dask_computes_when_it_is_carried(make: Any, target: str, computed: list[int]) -> None:
    source = make()
    plan = ferry.plan(source, target)
    assert (plan.action, plan.source_dtype, plan.shape) == ("copy", "int64", GRID.shape)
    assert STEP in plan.steps
    ferry.plan({"x": source}, target, dtype="float32")
    refused(ferry.CopyRequiredError, ValueError, lambda: ferry.to(source, target, copy=False))
    assert not computed
    result = ferry.to(source, target)
    assert len(computed) == 1
    check_tensor(target, result, np.ascontiguousarray(GRID + 1))
    with ferry.trace() as trips:
        ferry.to([source], target, copy=True)
    assert len(computed) == 2
    assert trips[0].plan.action == "copy"


def test_dask_in_other_functions(computed: list[int], tmp_path: Any) -> None:
    source, values = dask_array(), (GRID + 1).tolist()
    ferry.save(tmp_path / "x.npy", source)
    assert ferry.load(tmp_path / "x.npy").tolist() == values
    assert len(computed) == 1
    with ferry.publish(source) as ticket:
        assert ferry.attach(ticket).tolist() == values
    assert len(computed) == 2
    assert ferry.to(source, "numpy", out=np.zeros(GRID.shape, np.int64)).tolist() == values
    assert len(computed) == 3
    assert ferry.via("torch")(torch.clone)(source).tolist() == values
    assert len(computed) == 4
    assert ferry.to_async(source, "torch").result().tolist() == values
    assert len(computed) == 5


def test_dask_of_unknown_shape(computed: list[int]) -> None:
    source = dask_array()
    source = source[source > ODD]
    error = refused_everywhere(ferry.NotATensorError, TypeError, source)
    assert "compute_chunk_sizes" in error.hint
    assert not computed
    source.compute_chunk_sizes()
    assert ferry.to(source, "numpy").tolist() == (GRID + 1).reshape(-1).tolist()


def test_dask_of_masked_arrays(computed: list[int]) -> None:
    masked = da.ma.masked_equal(dask_array(), ODD + 1)
    error = refused_everywhere(ferry.NotATensorError, TypeError, masked)
    assert "MaskedArray" in str(error)
    assert "x.compute()" in error.hint
    assert not computed
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(masked.compute(), "torch"))


def test_dask_of_sparse_arrays(computed: list[int]) -> None:
    blocks = dask_array().map_blocks(sparse.COO)
    for source in (blocks, xr.DataArray(blocks)):
        error = refused_everywhere(ferry.NotATensorError, TypeError, source)
        assert "COO" in str(error)
    assert not computed


def test_dask_that_states_another_type() -> None:
    wrong = da.map_blocks(lambda block: block.astype(float), dask_array(), dtype="int64")
    refused(ferry.UnsupportedDTypeError, TypeError, lambda: ferry.to(wrong, "torch"))


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_datasets_of_hdf5(target: str) -> None:
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", data=GRID)
        result, plan = carried(dataset, target)
        assert STEP in plan.steps
        check_tensor(target, result, GRID)
        refused(ferry.CopyRequiredError, ValueError, lambda: ferry.to(dataset, target, copy=False))


def test_results_outlive_their_tables() -> None:
    result = ferry.to(pl.Series(np.arange(100_000)), "numpy")
    other = ferry.to(pd.DataFrame({"a": np.arange(100_000)}), "numpy")
    for _ in range(5):
        pl.Series(np.zeros(100_000)), pd.DataFrame({"a": np.zeros(100_000)})
    assert result.tolist() == list(range(100_000))
    assert other["a"].tolist() == list(range(100_000))
