"""Pillow images are what `numpy.asarray` makes of them, and columns of Arrow stay columns."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile
from support.images import MODES, image, images
from support.refusals import fact_and_hint, refused

import tensorferry as ferry
from tensorferry import arrow


def check(found: Any, given: Image.Image) -> None:
    """Compares a result with NumPy's array of the image."""
    expected = np.asarray(given)
    found = ferry.to(found, "numpy")
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype.newbyteorder("="))
    np.testing.assert_array_equal(found, expected)


SIZES = [(mode, size) for mode in MODES for size in ((1, 1), (5, 3), (0, 2), (640, 480))]
SIZES += [(mode, (4000, 4000)) for mode in ("1", "RGB", "I;16B")]


@pytest.mark.parametrize(("mode", "size"), SIZES, ids=str)
def test_every_mode_is_what_numpy_makes_of_it(mode: str, size: tuple[int, int]) -> None:
    photo = image(mode, size)
    found = ferry.to(photo, "numpy")
    check(found, photo)
    assert found.flags.writeable
    assert not np.shares_memory(found, ferry.to(photo, "numpy"))
    plan = ferry.plan(photo, "numpy")
    assert (plan.action, plan.bytes_moved) == ("copy", found.nbytes)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    images(40),
    st.sampled_from(("numpy", "torch", "jax", "tensorflow", "mlx")),
    st.lists(st.sampled_from((list, tuple)), max_size=2),
)
def test_any_image_in_any_tree(
    photo: Image.Image, target: str, containers: list[Callable[[Any], Any]]
) -> None:
    tree: Any = photo
    for container in containers:
        tree = container([tree])
    found = ferry.to(tree, target)
    for container in reversed(containers):
        assert type(found) is container
        found = found[0]
    check(found, photo)


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "I;16B"])
def test_every_door(mode: str, tmp_path: Path) -> None:
    photo = image(mode, (6, 4))
    check(ferry.to_async(photo, "torch").result(), photo)
    ferry.save(tmp_path / "x.npy", photo)
    check(ferry.load(tmp_path / "x.npy", "numpy"), photo)
    ferry.save(tmp_path / "x.safetensors", {"x": photo})
    check(ferry.load(tmp_path / "x.safetensors", "torch")["x"], photo)
    for tree in (photo, {"x": [photo]}):
        attached = ferry.attach(ferry.publish(tree), "numpy")
        check(attached["x"][0] if isinstance(tree, dict) else attached, photo)
    check(ferry.via("torch")(lambda x: x.clone())(photo), photo)
    (batch,) = ferry.feed([{"x": photo, "y": 3}], "torch")
    check(batch["x"], photo)
    out = np.empty_like(ferry.to(photo, "numpy"))
    assert ferry.to(photo, "numpy", out=out) is out
    check(out, photo)
    if mode != "1":
        column = pa.array(arrow.export(photo))
        pixels = np.array(column.to_pylist()).reshape(np.asarray(photo).shape)
        np.testing.assert_array_equal(pixels, np.asarray(photo))


def test_a_dataset_of_images() -> None:
    photos = [image("RGB", (6, 4)), image("L", (3, 2)), image("RGBA", (5, 1))]
    rows = datasets.Dataset.from_dict({"x": photos, "y": [0, 1, 2]})
    for row, photo, number in zip(ferry.feed(rows, "torch"), photos, range(3), strict=True):
        check(row["x"], photo)
        assert row["y"] == number
    batches = list(ferry.feed(rows.iter(batch_size=3), "jax"))
    for found, photo in zip(batches[0]["x"], photos, strict=True):
        check(found, photo)


def test_an_image_is_always_copied() -> None:
    photo = image("L", (64, 64))
    for target in ("numpy", "jax"):
        refused(
            ferry.CopyRequiredError, BufferError, lambda t=target: ferry.to(photo, t, copy=False)
        )
    with ferry.trace() as trips:
        ferry.to(photo, "numpy")
    assert [(trip.plan.action, trip.plan.bytes_moved) for trip in trips] == [("copy", 64 * 64)]


def encoded(frames: list[Image.Image], kind: str) -> io.BytesIO:
    file = io.BytesIO()
    options = {"save_all": True, "append_images": frames[1:]} if len(frames) > 1 else {}
    frames[0].save(file, kind, **options)
    return file


def test_a_plan_decodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Image.open(encoded([image("RGB", (40, 30))], "PNG"))

    def load(_self: Any) -> None:
        raise AssertionError("the image was decoded")

    with monkeypatch.context() as patched:
        patched.setattr(ImageFile.ImageFile, "load", load)
        plan = ferry.plan({"x": opened}, "torch")
    assert plan.bytes_moved == 40 * 30 * 3
    check(ferry.to(opened, "torch"), opened)


def test_frames_whose_mode_changes_when_they_are_decoded() -> None:
    frames = [Image.new("P", (8, 6), number) for number in range(3)]
    for number, frame in enumerate(frames):
        frame.putpalette(np.random.default_rng(number).bytes(768))
    opened = Image.open(encoded(frames, "GIF"))
    for number in range(3):
        opened.seek(number)
        found = ferry.to(opened, "numpy")
        check(found, opened)
        assert found.ndim == (2 if number == 0 else 3)


def test_an_image_that_cannot_be_decoded() -> None:
    file = encoded([image("RGB", (40, 30))], "PNG")
    opened = Image.open(io.BytesIO(file.getvalue()[:-800]))
    error = refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(opened, "numpy"))
    assert isinstance(error.__cause__, OSError)
    closed = Image.open(encoded([image("RGB", (4, 3))], "PNG"))
    closed.close()
    refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(closed, "numpy"))


def test_an_image_is_no_column() -> None:
    photo = image("RGB", (6, 4))
    with pytest.raises(ferry.NotATensorError) as caught:
        arrow.to(photo, "torch")
    _, hint = fact_and_hint(caught.value)
    assert "ferry.to" in hint
    check(ferry.to(photo, "torch"), photo)


# Columns.

NUMBERS = np.arange(5, dtype=np.float32)
COLUMNS: dict[str, Callable[[], Any]] = {
    "pyarrow": lambda: pa.array(NUMBERS),
    "pyarrow chunks": lambda: pa.chunked_array([NUMBERS[:2], NUMBERS[2:]]),
    "polars": lambda: pl.Series(NUMBERS),
    "pandas": lambda: pd.Series(NUMBERS),
    "pandas over Arrow": lambda: pd.Series(NUMBERS, dtype="float[pyarrow]"),
    "nanoarrow": lambda: nanoarrow.Array(NUMBERS, nanoarrow.float32()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_go_by_arrow(name: str) -> None:
    assert ferry.to(COLUMNS[name](), "torch").tolist() == NUMBERS.tolist()
    assert ferry.plan(COLUMNS[name](), "torch").source in ("arrow", "pandas", "numpy")


class Column:
    """A column of 32 bytes with the Arrow interface, and what else `members` has."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return pa.array(np.arange(4, dtype=np.float64)).__arrow_c_array__(requested_schema)


class Matrix:
    """The same memory as an array."""

    values = np.arange(4, dtype=np.float64).reshape(2, 2)


def both(**members: Any) -> Any:
    return type("Both", (Column, Matrix), members)()


@pytest.mark.parametrize("name", ["__array_interface__", "__array_struct__"])
def test_an_array_interface_outranks_arrow(name: str) -> None:
    thing = both(**{name: property(lambda self: getattr(self.values, name))})
    for target in ("numpy", "torch"):
        assert ferry.to(thing, target).shape == (2, 2)
        assert ferry.to({"x": thing}, target)["x"].shape == (2, 2)
    assert np.shares_memory(ferry.to(thing, "numpy"), Matrix.values)


@pytest.mark.parametrize("name", ["__dlpack__", "__array__", "__cuda_array_interface__"])
def test_other_protocols_do_not_outrank_arrow(name: str) -> None:
    def refuse(self: Any, **keywords: Any) -> None:
        raise AssertionError(f"{name} was called")

    assert ferry.to(both(**{name: refuse}), "torch").tolist() == [0, 1, 2, 3]


def test_a_subclass_of_an_image() -> None:
    class Photo(Image.Image):
        pass

    photo = image("L", (3, 2))
    photo.__class__ = Photo
    assert torch.equal(ferry.to(photo, "torch"), torch.tensor(np.array(photo)))


def test_a_subclass_whose_pixels_are_not_what_its_mode_says() -> None:
    class Scaled(Image.Image):
        @property
        def __array_interface__(self) -> dict[str, Any]:
            return {"shape": (2, 3), "typestr": "<f4", "version": 3, "data": bytes(24)}

    photo = image("L", (3, 2))
    photo.__class__ = Scaled
    error = refused(ferry.InvalidTensorError, BufferError, lambda: ferry.to(photo, "torch"))
    assert "uint8" in str(error)
    assert "float32" in str(error)
