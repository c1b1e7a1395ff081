"""Quantities of astropy and pint, and masked arrays of astropy, are refused, not stripped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import astropy.coordinates
import astropy.nddata
import astropy.table
import astropy.units
import jax
import jax.numpy as jnp
import numpy as np
import pint
import pytest
import torch
import xarray as xr
from astropy.utils.masked import Masked
from support.entry_points import ENTRY_POINTS
from support.followed_hints import follow
from support.refusals import fact_and_hint

import tensorferry as ferry

METRES = astropy.units.m
ONE = astropy.units.one
REGISTRY = pint.UnitRegistry()
VALUES = [0.5, 1.5, 2.5]
ANGLE = astropy.coordinates.Angle(VALUES, "deg")
MASKED = Masked(np.array(VALUES), [True, False, False])

# Objects, and the unit that the error names.
UNITS: dict[str, tuple[Any, str]] = {
    "a column": (astropy.table.Column(VALUES, unit="m"), "m"),
    "astropy": (VALUES * METRES, "m"),
    "a number of astropy": (3.0 * METRES, "m"),
    "a ratio of astropy": (VALUES * astropy.units.Unit("km / m"), "km / m"),
    "per cent of astropy": (VALUES * astropy.units.percent, "%"),
    "radians of astropy": (VALUES * astropy.units.rad, "rad"),
    "an angle": (ANGLE, "deg"),
    "magnitudes": (astropy.units.Magnitude(VALUES), "mag"),
    "masked": (MASKED * METRES, "m"),
    "a masked angle": (
        Masked(astropy.coordinates.Angle(VALUES, "deg"), [True, False, False]),
        "deg",
    ),
    "pint": (REGISTRY.Quantity(np.array(VALUES), "meter"), "meter"),
    "a number of pint": (REGISTRY.Quantity(3.0, "meter"), "meter"),
    "an integer of pint": (REGISTRY.Quantity(3, "meter"), "meter"),
    "a ratio of pint": (REGISTRY.Quantity(np.array(VALUES), "km / m"), "kilometer / meter"),
    "per cent of pint": (REGISTRY.Quantity(np.array(VALUES), "percent"), "percent"),
    "radians of pint": (REGISTRY.Quantity(np.array(VALUES), "radian"), "radian"),
    "a tensor of pint": (REGISTRY.Quantity(torch.tensor(VALUES), "meter"), "meter"),
}


# xarray keeps the quantities of other libraries, and `__array__` drops their unit.
UNITS |= {
    f"{kind.__name__} of {name}": (
        kind(("x",), values) if kind is xr.Variable else kind(values),
        unit,
    )
    for kind in (xr.DataArray, xr.Variable)
    for name, (values, unit) in UNITS.items()
    if name in ("astropy", "pint", "a tensor of pint")
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_refused(name: str, entry_point: str, tmp_path: Path) -> None:
    x, unit = UNITS[name]
    with pytest.raises(ferry.NotATensorError) as caught:
        ENTRY_POINTS[entry_point](x, tmp_path)
    fact, _ = fact_and_hint(caught.value)
    assert f"of the unit {unit} " in fact
    # The library's own ways, with the unit of the object.
    values = [0, *VALUES[1:]] if isinstance(x, Masked) else VALUES
    for way in range(2):
        value = follow(caught.value, way=way, x=x, value=0)
        assert ferry.to(value, "torch").tolist() == (values if np.shape(value) else 3.0)


def test_a_structured_unit_is_refused() -> None:
    pair = np.array([(1, 2)], "f8,f8")
    unit = astropy.units.StructuredUnit((METRES, astropy.units.s), names=("f0", "f1"))
    with pytest.raises(ferry.NotATensorError, match=r"of the unit \(m, s\)"):
        ferry.to(astropy.units.Quantity(pair, unit), "numpy")


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_mask_of_astropy_is_refused(entry_point: str, tmp_path: Path) -> None:
    with pytest.raises(ferry.NotATensorError, match="losing its mask") as caught:
        ENTRY_POINTS[entry_point](MASKED, tmp_path)
    assert ferry.to(follow(caught.value, x=MASKED, value=0), "torch").tolist() == [0, 1.5, 2.5]
    assert "x.unmasked and x.mask" in caught.value.hint
    assert ferry.to([MASKED.unmasked, MASKED.mask], "torch")[0].tolist() == VALUES


def test_columns_of_a_table_that_cannot_be_replaced() -> None:
    columns = astropy.table.Table({"a": VALUES}).columns
    with pytest.raises(ferry.FrameworkError, match="TableColumns") as caught:
        ferry.to(columns, "torch")
    assert "pass a dict" in caught.value.hint
    assert ferry.to(dict(columns), "torch")["a"].tolist() == VALUES


@pytest.mark.parametrize("unit", [None, "m"])
def test_the_hint_for_a_masked_column(unit: str | None) -> None:
    x = astropy.table.MaskedColumn(VALUES, mask=[True, False, False], unit=unit)
    with pytest.raises(ferry.NotATensorError) as caught:
        ferry.to(x, "torch")
    found = ferry.to(follow(caught.value, x=x, value=0), "torch")
    assert found.tolist() == [0, 1.5, 2.5]
    assert unit or "numpy.asarray(x) and x.mask" in caught.value.hint
    assert ferry.to([np.asarray(x), x.mask], "torch")[0].tolist() == VALUES


def test_a_mask_of_a_quantity_is_filled() -> None:
    with pytest.raises(ferry.NotATensorError) as caught:
        ferry.to(MASKED * METRES, "torch")
    found = ferry.to(follow(caught.value, x=MASKED * METRES, value=0), "torch")
    assert found.tolist() == [0, 1.5, 2.5]


@pytest.mark.parametrize("kind", [astropy.table.Table, astropy.table.QTable])
def test_the_columns_of_a_table(kind: type) -> None:
    x = kind({"a": VALUES})
    for part, expected in ((x, {"a": VALUES}), (x[1], VALUES[1])):
        with pytest.raises(ferry.NotATensorError) as caught:
            ferry.to(part, "torch")
        found = ferry.to(follow(caught.value, x=part, name="a"), "torch")
        assert (found["a"] if isinstance(found, dict) else found).tolist() == (
            expected["a"] if isinstance(expected, dict) else expected
        )
    masked = kind({"a": VALUES}, masked=True)
    masked["a"].mask = [True, False, False]
    with pytest.raises(ferry.NotATensorError):
        ferry.to(dict(masked.columns), "torch")


def test_a_mask_without_a_unit_is_refused() -> None:
    with pytest.raises(ferry.NotATensorError, match="losing its mask"):
        ferry.to(MASKED * ONE, "numpy")


WITHOUT_UNIT = {
    "astropy": (VALUES * ONE, VALUES),
    "a number of astropy": (3.0 * ONE, 3.0),
    "a cancelled unit": (VALUES * METRES / METRES, VALUES),
    "pint": (REGISTRY.Quantity(np.array(VALUES), ""), VALUES),
    "a number of pint": (REGISTRY.Quantity(3.0, ""), 3.0),
    "a tensor of pint": (REGISTRY.Quantity(torch.tensor(VALUES), ""), VALUES),
    "xarray": (xr.DataArray(VALUES * ONE), VALUES),
}


@pytest.mark.parametrize("name", WITHOUT_UNIT)
def test_a_quantity_without_a_unit_converts_as_its_value(name: str, tmp_path: Path) -> None:
    x, values = WITHOUT_UNIT[name]
    for framework, kind in {"numpy": np.ndarray, "torch": torch.Tensor}.items():
        result = ferry.to(x, framework)
        assert type(result) is kind
        assert result.tolist() == values
        inside = ferry.to({"a": [x, 1]}, framework)
        assert type(inside["a"][0]) is kind
        assert inside["a"][1] == 1
    for entry_point, call in ENTRY_POINTS.items():
        if np.ndim(values) or "export" not in entry_point:  # a column has an axis
            call(x, tmp_path)
    assert ferry.load(tmp_path / "x.npz", "numpy")["a"].tolist() == values


def test_a_quantity_without_a_unit_shares_its_memory() -> None:
    for x in (VALUES * ONE, REGISTRY.Quantity(np.array(VALUES), "")):
        assert ferry.plan(x, "torch").shares
        ferry.to(x, "torch")[0] = 7
        assert x[0] == 7


def test_one_argument_without_a_unit_admits_no_other() -> None:
    """The type of a quantity does not tell whether it has a unit."""
    length = REGISTRY.Quantity(np.array(VALUES), "meter")
    for ones, other in ((VALUES * ONE, VALUES * METRES), (length / REGISTRY.meter, length)):
        double = ferry.via("torch")(lambda x: x * 2)
        assert ferry.to(double(ones), "numpy").tolist() == [1, 3, 5]
        with pytest.raises(ferry.NotATensorError, match="losing its unit"):
            double(other)


@pytest.mark.parametrize(
    "x",
    [
        VALUES * METRES,
        REGISTRY.Quantity(VALUES, "meter"),
        MASKED,
        xr.DataArray(VALUES * METRES),
        xr.DataArray(MASKED),
    ],
)
def test_a_refused_argument_beside_a_tensor(x: Any) -> None:
    """Arguments with gradients, and those of which some are traced, are converted one by one."""

    @ferry.via("torch", grad=True)
    def first(tensor: Any, _other: Any) -> Any:
        return tensor

    for call in (
        lambda: first(jnp.ones(3), {"a": [x]}),
        lambda: jax.jit(lambda tensor: ferry.via("jax")(max)(tensor, x))(jnp.ones(3)),
        lambda: ferry.via("numpy")(len)({"a": [np.ones(3), x]}),
    ):
        with pytest.raises(ferry.NotATensorError, match="losing its"):
            call()


@pytest.mark.parametrize("name", UNITS)
def test_a_pickle_keeps_the_unit(name: str) -> None:
    x, unit = UNITS[name]
    back = ferry.pickling.loads(*ferry.pickling.dumps({"a": x}))["a"]
    back = back.data if isinstance(back, xr.DataArray | xr.Variable) else back
    assert str(getattr(back, "unit", None) or back.units) == unit


def test_columns_and_data_of_astropy_are_refused_for_a_unit_or_a_mask() -> None:
    values = np.array(VALUES)
    for x in (
        astropy.nddata.CCDData(values, unit="adu"),
        astropy.nddata.NDData(values, mask=values > 1),
        astropy.nddata.NDData(values, uncertainty=astropy.nddata.StdDevUncertainty(values)),
        astropy.table.MaskedColumn(values, mask=values > 1),
    ):
        for call in (ferry.to, ferry.plan):
            with pytest.raises(ferry.NotATensorError) as caught:
                call(x, "numpy")
            assert caught.value.hint
    for x in (
        astropy.table.Column(values),
        astropy.table.MaskedColumn(values),
        astropy.nddata.NDDataRef(values),
    ):
        assert ferry.to({"x": x}, "torch")["x"].tolist() == VALUES
