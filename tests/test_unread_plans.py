"""Plans of objects whose library reads or computes their values: a plan does neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorstore
import xarray as xr
from matrix.check import said
from support.introspect import FRAMEWORKS, check_tensor
from support.refusals import refused

import tensorferry as ferry

VALUES = np.arange(6.0).reshape(2, 3)
STEP = ("convert", "converted by its own library")
UNREAD = "known when its library reads it"


class Lazy:
    """Has `__array__` alone, which does not share."""

    reads = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("memory allocation cannot be avoided")
        self.reads += 1
        return VALUES.copy()


class NoArguments(Lazy):
    """The oldest form."""

    def __array__(self) -> np.ndarray:  # type: ignore[override]
        self.reads += 1
        return VALUES.copy()


@pytest.mark.parametrize("kind", [Lazy, NoArguments])
def test_an_object_that_states_nothing(kind: type[Lazy]) -> None:
    thing = kind()
    for plan in (ferry.plan(thing, "jax"), ferry.plan({"x": [thing, VALUES]}, "torch").parts[0]):
        assert (plan.action, plan.source_dtype, plan.dtype) == ("copy", "unknown", "unknown")
        assert STEP in plan.steps
        assert f"type and shape {UNREAD}" in str(plan)
        assert f"copied, size {UNREAD}" in str(plan)
        assert plan.expected_seconds is None
        assert "shape" not in plan.as_dict()
        with pytest.raises(AttributeError, match="read the shape of the source"):
            _ = plan.shape
    assert ferry.plan(thing, "torch", dtype="float16").dtype == "float16"
    refused(ferry.CopyRequiredError, ValueError, lambda: ferry.plan(thing, "torch", copy=False))
    tree = ferry.plan([thing, VALUES[::-1]], "torch")
    assert "copied (at least 48 bytes), at least 48 bytes of new memory" in str(tree)
    assert UNREAD in str(tree)
    assert thing.reads == 0


def test_an_object_that_states_its_shape_alone() -> None:
    thing = Lazy()
    thing.shape = VALUES.shape  # type: ignore[attr-defined]
    plan = ferry.plan(thing, "torch", dtype="float16")
    assert (plan.source_dtype, plan.dtype, plan.shape) == ("unknown", "float16", (2, 3))
    assert (plan.bytes_moved, plan.extra_bytes) == (12, 12)
    assert f"type {UNREAD}, of shape (2, 3), becomes float16" in str(plan)
    assert [step for step, _ in plan.steps] == ["convert"]
    assert thing.reads == 0


def test_a_file_reads_an_object_that_states_nothing_once(tmp_path) -> None:
    thing = Lazy()
    ferry.save(tmp_path / "x.npy", thing)
    assert thing.reads == 1
    np.testing.assert_array_equal(ferry.load(tmp_path / "x.npy", "numpy"), VALUES)


@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
def test_a_tensorstore_is_not_read_by_a_plan(target: str, tmp_path: Path) -> None:
    kvstore = {"driver": "file", "path": str(tmp_path)}
    spec = {"driver": "zarr", "kvstore": kvstore}
    x = tensorstore.open(spec, create=True, dtype="float32", shape=VALUES.shape).result()
    x[...] = VALUES.astype("f4")
    with ferry.trace() as trips:
        check_tensor(target, ferry.to(x, target), VALUES.astype("f4"))
    # Nothing can be read.
    for chunk in tmp_path.glob("[0-9]*"):
        chunk.write_bytes(b"")
    for plan in (ferry.plan(x, target), ferry.plan({"a": [x]}, target).parts[0]):
        assert (plan.action, plan.dtype, plan.shape) == ("copy", "float32", VALUES.shape)
        assert plan.steps[0] == STEP
    assert [said(trip.plan) for trip in trips] == [said(ferry.plan(x, target))]
    refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(x, target))


def has_values(array: xr.DataArray) -> bool:
    """Whether xarray holds the values of an opened file."""
    return array.variable._in_memory


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_an_xarray_variable_of_a_file_is_not_read_by_a_plan(target: str, tmp_path) -> None:
    path, values = tmp_path / "x.nc", np.ones((3, 2), np.float32)
    xr.Dataset({"a": (("x", "y"), values)}).to_netcdf(path, engine="scipy")
    with xr.open_dataset(path, engine="scipy") as dataset:
        for x in (dataset["a"], dataset["a"].variable, dataset["a"][1:]):
            plan = ferry.plan(x, target)
            assert (plan.action, plan.dtype, plan.shape) == ("copy", "float32", x.shape)
            assert STEP in plan.steps
            for call in (ferry.plan, ferry.to):
                with pytest.raises(ferry.CopyRequiredError):
                    call(x, target, copy=False)
        plan = ferry.plan(dataset["a"], target)
        assert not has_values(dataset["a"])
        with ferry.trace() as trips:
            result = ferry.to(dataset["a"], target)
        assert [said(trip.plan) for trip in trips] == [said(plan)]
        check_tensor(target, result, values)
        assert has_values(dataset["a"]), "xarray keeps what was read"
        assert ferry.plan(dataset["a"], "numpy").shares


def test_a_plan_reads_no_dataset_of_hdf5(monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", data=VALUES)
        monkeypatch.setattr(h5py.Dataset, "read_direct", None)
        assert ferry.plan([dataset], "torch").bytes_moved == VALUES.nbytes
        refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(dataset, "torch"))
