"""Objects that are not tensors, and targets that are not frameworks: their hints work."""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import dask
import datasets
import grain
import h5py
import jax
import keras
import numpy as np
import onnx
import paddle
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
import safetensors
import tensorflow as tf
import torch
import xarray as xr
from flax import nnx
from support.entry_points import ENTRY_POINTS
from support.followed_hints import follow
from torch.masked import masked_tensor

import tensorferry as ferry

VALUES = [1.5, 2.5, 3.5]
INPUT = keras.Input((3,))
DATASET = datasets.Dataset(pa.table({"y": VALUES, "z": [1, 2, 3]}))
STREAM = DATASET.to_iterable_dataset()
FILES = pyarrow.dataset.dataset(pa.table({"y": VALUES}))
LOADER = torch.utils.data.DataLoader(torch.tensor(VALUES), batch_size=3)
KEY = nnx.Rngs(0).default.key
GROUP = xr.Dataset({"y": ("t", VALUES)}, {"t": VALUES})


class Rows:
    """A map-style dataset of one batch."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> np.ndarray:
        return np.array(VALUES)


class Named(Mapping):
    """A mapping of its own kind."""

    def __getitem__(self, key: str) -> np.ndarray:
        return {"y": np.array(VALUES)}[key]

    def __iter__(self) -> Iterator[str]:
        return iter("y")

    def __len__(self) -> int:
        return 1


class KerasRows(Rows, keras.utils.PyDataset):
    pass


class PaddleRows(Rows, paddle.io.Dataset):
    pass


def masked() -> Any:
    with pytest.warns(UserWarning, match="prototype"):
        return masked_tensor(torch.tensor(VALUES), torch.tensor([True, False, True]))


def npz() -> Any:
    file = io.BytesIO()
    np.savez(file, y=np.array(VALUES))
    file.seek(0)
    return np.load(file)


class Case(NamedTuple):
    make: Callable[[], Any]
    #: What the hint's expression converts to.
    expected: Any = VALUES
    #: The names that the expression uses, besides x.
    names: Mapping[str, Any] = MappingProxyType({})


# Their array protocols are not used, in trees too.
REFUSED = {
    "masked tensor": Case(masked),
    "symbolic Keras tensor": Case(
        lambda: INPUT * 1, [VALUES], {"keras": keras, "inputs": INPUT, "values": np.array([VALUES])}
    ),
    "key of flax": Case(lambda: KEY, jax.random.key_data(KEY.get_value()).tolist(), {"jax": jax}),
    "stream of flax": Case(
        lambda: nnx.Rngs(0).default, jax.random.key_data(KEY.get_value()).tolist(), {"jax": jax}
    ),
    "levels of pandas": Case(
        lambda: pd.MultiIndex.from_arrays([VALUES, [1, 2, 3]], names=["y", "z"]),
        {"y": VALUES, "z": [1, 2, 3]},
    ),
    "variables of a dataset": Case(lambda: GROUP.data_vars, {"y": VALUES}),
    "coordinates of a dataset": Case(lambda: GROUP.coords, {"t": VALUES}),
    "npz file": Case(npz, {"y": VALUES}),
    "dataset of xarray": Case(lambda: GROUP, {"y": VALUES}),
}
# They have no array protocol.
OTHERS = {
    "dataset": Case(lambda: DATASET, {"y": VALUES, "z": [1, 2, 3]}),
    "iterable dataset": Case(lambda: STREAM, {"y": VALUES, "z": [1, 2, 3]}),
    "column": Case(lambda: DATASET["y"], {"y": VALUES}, {"dataset": DATASET}),
    "iterable column": Case(lambda: STREAM["y"], {"y": VALUES}, {"dataset": STREAM}),
    "splits": Case(lambda: datasets.DatasetDict(a=DATASET), {"y": VALUES, "z": [1, 2, 3]}),
    "iterable splits": Case(
        lambda: datasets.IterableDatasetDict(a=STREAM), {"y": VALUES, "z": [1, 2, 3]}
    ),
    "loader": Case(lambda: LOADER),
    "dataset of torch": Case(
        lambda: torch.utils.data.TensorDataset(torch.tensor([VALUES])), [VALUES]
    ),
    "dataset of TensorFlow": Case(lambda: tf.data.Dataset.from_tensors(VALUES)),
    "generator": Case(lambda: (np.array(VALUES) for _ in range(1))),
    "map": Case(lambda: map(np.array, [VALUES])),
    "zip": Case(lambda: zip([np.array(VALUES)], strict=True), [VALUES]),
    "iterator": Case(lambda: iter([np.array(VALUES)])),
    "map-style dataset": Case(Rows),
    "PyDataset": Case(lambda: KerasRows()),
    "loader of Paddle": Case(lambda: paddle.io.DataLoader(PaddleRows(), batch_size=None)),
    "dataset of grain": Case(lambda: grain.MapDataset.source([np.array(VALUES)])),
    "iterable dataset of grain": Case(
        lambda: grain.MapDataset.source([np.array(VALUES)]).to_iter_dataset()
    ),
    "loader of grain": Case(
        lambda: grain.DataLoader(data_source=Rows(), sampler=grain.samplers.SequentialSampler(1))
    ),
    "set": Case(lambda: {torch.tensor(VALUES)}, [VALUES]),
    "mapping": Case(Named, {"y": VALUES}),
    "view of a dict": Case({"a": np.array(VALUES)}.values),
    "range": Case(lambda: range(3), [0, 1, 2]),
    "delayed array": Case(lambda: dask.delayed(np.array)(VALUES)),
    "dataset of files": Case(lambda: FILES, {"y": VALUES}),
    "scanner": Case(lambda: FILES.scanner(), {"y": VALUES}),
    "tree of xarray": Case(
        lambda: xr.DataTree(xr.Dataset({"y": ("x", VALUES)})), {"y": VALUES}, {"name": "/"}
    ),
    "shape and type": Case(lambda: jax.ShapeDtypeStruct((3,), "float32"), [0, 0, 0], {"jax": jax}),
    "SequenceProto": Case(
        lambda: onnx.numpy_helper.from_list([np.array(VALUES)]), [VALUES], {"onnx": onnx}
    ),
    "shared array": Case(lambda: multiprocessing.Array("d", VALUES)),
    "shared value": Case(lambda: multiprocessing.Value("d", 1.5), 1.5),
    "TensorProto": Case(
        lambda: onnx.numpy_helper.from_array(np.array(VALUES)), names={"onnx": onnx}
    ),
    "scalar": Case(lambda: pa.scalar(1.5), 1.5, {"numpy": np}),
    "scalar of a list": Case(lambda: pa.scalar(VALUES), names={"numpy": np}),
}


def check(case: Case, call: Callable[[Any], Any]) -> None:
    """The call fails, and its hint leads to the expected values."""
    x = case.make()
    with pytest.raises(ferry.NotATensorError) as caught:
        call(x)
    names = {"x": x, "framework": "numpy", "rows": 3, "name": "a"}
    result = follow(caught.value, **names | case.names)
    if "ferry.feed" in caught.value.hint or "batches" in caught.value.hint:
        result = next(iter(result))
    result = ferry.to(result, "torch")
    if isinstance(result, dict):
        assert {name: column.tolist() for name, column in result.items()} == case.expected
    elif isinstance(result, (list, tuple)):
        assert [part.tolist() for part in result] == case.expected
    else:
        assert result.tolist() == case.expected


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_type(name: str, entry_point: str, tmp_path: Path) -> None:
    check(REFUSED[name], lambda x: ENTRY_POINTS[entry_point](x, tmp_path))


@pytest.mark.parametrize("call", [ferry.to, ferry.plan])
def test_an_opened_file_of_safetensors(call: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"y": np.array(VALUES)})
    with safetensors.safe_open(path, "np") as file:
        check(Case(lambda: file, {"y": VALUES}, {"path": path}), lambda x: call(x, "numpy"))


def test_a_framework_keeps_what_it_can_use() -> None:
    x = masked()
    assert ferry.to({"a": x}, "torch")["a"] is x
    assert ferry.to({"a": KEY}, "jax")["a"] is KEY


@pytest.mark.parametrize("call", [ferry.to, ferry.plan])
@pytest.mark.parametrize("name", OTHERS)
def test_an_object_without_a_tensor(name: str, call: Callable[..., Any]) -> None:
    check(OTHERS[name], lambda x: call(x, "numpy"))


#: Types that the table of libraries knows.
KNOWN = ["dataset", "iterable dataset", "column", "iterable column", "delayed array"]
KNOWN += ["dataset of files", "scanner", "shape and type", "SequenceProto", "TensorProto"]
KNOWN += ["shared array", "shared value", "lazy table", "reference"]


@pytest.mark.filterwarnings("ignore:an object of type")
@pytest.mark.parametrize("name", KNOWN)
def test_an_object_of_a_library_passes_with_its_hint(name: str) -> None:
    with h5py.File("x", "w", driver="core", backing_store=False) as file:
        more = {
            "lazy table": lambda: pl.LazyFrame({"y": VALUES}),
            "reference": lambda: file.create_dataset("y", data=VALUES).ref,
        }
        x = more[name]() if name in more else OTHERS[name].make()
        with pytest.raises(ferry.NotATensorError) as caught:
            ferry.to(x, "numpy")
        tree = {"a": x, "b": np.ones(1)}
        with ferry.trace() as trips:
            ferry.to(tree, "numpy")
        (note,) = ferry.plan(tree, "numpy").notes
        assert f"; {caught.value.hint}: ['a'] (" in note
        assert "tensors in" not in note
        assert trips.notes == [note]


def test_the_warning_about_an_object_of_a_library() -> None:
    class Lazy(pl.LazyFrame):
        pass

    with pytest.warns(
        UserWarning, match=r"Lazy in a tree stays as it is\nhint: pass x.collect"
    ) as all_:
        ferry.to([Lazy({"y": VALUES}), Lazy({"y": VALUES}), np.ones(1)], "numpy")
    assert len(all_) == 1


@pytest.mark.parametrize("name", ["loader", "dataset of torch", "dataset of TensorFlow"])
def test_a_loader_in_a_tree(name: str) -> None:
    x = OTHERS[name].make()
    hints = []
    for given in (x, [x]):
        with pytest.raises(ferry.NotATensorError) as caught:
            ferry.to(given, "numpy")
        hints.append(caught.value.hint)
    assert hints[1].startswith(hints[0])
    check(OTHERS[name], lambda x: ferry.to([x], "numpy"))


@pytest.mark.parametrize("name", ["column", "iterable column", "splits", "iterable splits"])
def test_an_object_without_arrow_columns(name: str) -> None:
    check(OTHERS[name], lambda x: ferry.arrow.to(x, "numpy"))
    check(OTHERS[name], lambda x: ferry.arrow.batches(x, 2, "numpy"))


# Targets.

READERS = {
    "polars": lambda column: pl.Series(column).to_list(),
    "pandas": lambda column: pd.Series.from_arrow(column).tolist(),
    "pyarrow": lambda column: pa.array(column).to_pylist(),
    "arrow": lambda column: pa.array(column).to_pylist(),
}


@pytest.mark.parametrize("target", [*READERS, pl, pd, pa])
def test_libraries_of_tables_as_targets(target: Any) -> None:
    x = torch.tensor(VALUES)
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.to(x, target)
    name = target if isinstance(target, str) else target.__name__
    assert READERS[name](follow(caught.value, x=x)) == VALUES


def test_h5py_as_a_target() -> None:
    x = torch.tensor(VALUES)
    for target in ("h5py", h5py):
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            ferry.to(x, target)
        with h5py.File("target", "w", driver="core", backing_store=False) as file:
            follow(caught.value, x=x, file=file, name="y")
            assert file["y"][:].tolist() == VALUES


def test_cudf_as_a_target() -> None:
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.to(torch.tensor(VALUES), "cudf")
    assert follow(caught.value) == "cupy"


@pytest.mark.parametrize("target", ["keras", keras, tf.keras, "numba"])
def test_libraries_over_a_framework_as_targets(target: Any) -> None:
    for call in (ferry.to, ferry.plan, lambda x, target: ferry.via(target)):
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            call(np.array(VALUES), target)
    framework = follow(caught.value, keras=keras)
    assert framework == ("numpy" if target == "numba" else keras.backend.backend())
    assert ferry.to(ferry.to(np.array(VALUES), framework), "numpy").tolist() == VALUES
