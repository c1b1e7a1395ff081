"""netCDF4, zarr and uncertainties: what is converted, what a plan reads, followed hints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import torch
import uncertainties
import zarr
from support.entry_points import ENTRY_POINTS
from support.followed_hints import follow
from support.refusals import fact_and_hint, refused
from uncertainties import unumpy

import tensorferry as ferry

NUMBERS = np.arange(4.0)
DATES = np.array(["2020-01-01", "2020-01-02"], "M8[s]")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[netCDF4.Dataset]:
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 4)
        file.createVariable("plain", "f4", "x")[:] = NUMBERS
        scaled = file.createVariable("scaled", "i2", "x")
        scaled.scale_factor, scaled.add_offset = 0.5, 1.0
        scaled[:] = NUMBERS
        holes = file.createVariable("holes", "f4", "x", fill_value=-1)
        holes[:] = np.ma.masked_array(NUMBERS, [0, 1, 0, 0])
        file.createVariable("text", str, "x")[:] = np.array(list("abca"), object)
        yield file


@pytest.fixture
def group(tmp_path: Path) -> zarr.Group:
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_array("numbers", data=NUMBERS)
    group.create_array("dates", data=DATES)
    group.create_array("text", data=np.array(["b", "a"], np.dtypes.StringDType()))
    return group


def test_variables_of_netcdf4(file: netCDF4.Dataset) -> None:
    assert ferry.to(file["plain"], "torch").tolist() == NUMBERS.tolist()
    result = ferry.to({"x": file["scaled"]}, "numpy")["x"]
    assert type(result) is np.ndarray
    assert result.dtype == np.float64
    assert result.tolist() == NUMBERS.tolist()


def test_a_plan_does_not_read_netcdf4(file: netCDF4.Dataset) -> None:
    for name in ("plain", "scaled", "holes"):
        plan = ferry.plan(file[name], "numpy")
        assert (plan.action, plan.dtype, plan.shape) == ("copy", "unknown", (4,))
        assert "known when its library reads it" in str(plan)
    with ferry.trace() as trips:
        ferry.to(file["scaled"], "numpy")
    assert [trip.plan.action for trip in trips] == ["copy"]


@pytest.mark.parametrize("x", ["plain", "scaled"])
def test_every_entry_point_reads_netcdf4(file: netCDF4.Dataset, x: str, tmp_path: Path) -> None:
    variable, values = file[x], NUMBERS.tolist()
    ferry.save(tmp_path / "x.npy", variable)
    assert ferry.load(tmp_path / "x.npy", "numpy").tolist() == values
    with ferry.publish(variable) as ticket:
        assert ferry.attach(ticket, "numpy").tolist() == values
    assert ferry.to_async(variable, "torch").result().tolist() == values
    assert ferry.via("torch")(torch.clone)(variable).tolist() == values


def test_hints_of_netcdf4(file: netCDF4.Dataset) -> None:
    def converted(x: Any) -> Any:
        with pytest.raises(ferry.FerryError) as caught:
            ferry.to(x, "torch")
        return ferry.to(follow(caught.value, x=x, value=-5), "torch")

    assert converted(file["holes"]).tolist() == [0, -5, 2, 3]
    assert converted(file["text"]).tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_file_of_netcdf4_is_a_group(
    file: netCDF4.Dataset, entry_point: str, tmp_path: Path
) -> None:
    group = file.createGroup("group")
    group.createVariable("x", "f4", "x")[:] = NUMBERS
    with pytest.raises(ferry.NotATensorError) as caught:
        ENTRY_POINTS[entry_point](group, tmp_path)
    found = ferry.to(follow(caught.value, x=group), "torch")
    assert found["x"].tolist() == NUMBERS.tolist()


def test_arrays_of_zarr(group: zarr.Group, monkeypatch: pytest.MonkeyPatch) -> None:
    array = group["numbers"]
    result = ferry.to(array, "torch")
    assert result.tolist() == NUMBERS.tolist()
    monkeypatch.setattr(zarr.Array, "__getitem__", None)
    plan = ferry.plan({"x": array}, "torch").parts[0]
    assert (plan.action, plan.dtype, plan.bytes_moved) == ("copy", "float64", NUMBERS.nbytes)


def test_hints_of_zarr(group: zarr.Group) -> None:
    for name, values in (("dates", DATES.view("int64").tolist()), ("text", [1, 0])):
        x = group[name]
        error = refused(ferry.UnsupportedDTypeError, TypeError, lambda x=x: ferry.to(x, "torch"))
        assert ferry.to(follow(error, x=x), "torch").tolist() == values
    del group["dates"], group["text"]
    error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(group, "torch"))
    assert ferry.to(follow(error, x=group), "torch")["numbers"].tolist() == NUMBERS.tolist()
    with pytest.raises(ferry.NotATensorError, match="at \\['a'\\]"):
        ferry.to({"a": group}, "torch")
    out = group["numbers"]
    error = refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(NUMBERS, "numpy", out=out)
    )
    x = torch.from_numpy(NUMBERS) + 1
    exec(fact_and_hint(error)[1].removeprefix("write "), {"ferry": ferry, "x": x, "out": out})
    assert out[:].tolist() == x.tolist()


def test_hints_for_uncertainties() -> None:
    for x, values in (
        (unumpy.uarray([1.0, 2.0], [0.1, 0.2]), [1, 2]),
        (unumpy.umatrix([1.0, 2.0], [0.1, 0.2]), [[1, 2]]),
        (uncertainties.ufloat(1, 0.1), 1),
        (uncertainties.ufloat(1, 0.1) * 2, 2),
    ):
        with pytest.raises(ferry.FerryError) as caught:
            ferry.to(x, "torch")
        found = follow(caught.value, x=x, uncertainties=uncertainties)
        assert ferry.to(found, "torch").tolist() == values
