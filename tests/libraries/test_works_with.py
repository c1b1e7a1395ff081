"""The page "Works with": each row's code runs, and gives the values that NumPy has."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorferry as ferry

PAGE = Path(__file__).parents[2] / "docs" / "works-with.md"
ROWS = dict(re.findall(r"^\| ([A-Za-z][\w -]+) \| `([^|]+)` \|", PAGE.read_text(), re.MULTILINE))
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
COLUMN = VALUES.ravel()
IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)

# Each returns the names that the row's code uses, and the result as an array of NumPy.
Prepared = tuple[dict[str, Any], np.ndarray]


def accelerate(_: Path) -> Prepared:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    loader = DataLoader(torch.from_numpy(VALUES), batch_size=2)
    return {"accelerator": Accelerator(cpu=True), "loader": loader}, VALUES


def astropy(_: Path) -> Prepared:
    from astropy import units

    return {"quantity": VALUES * units.m}, VALUES


def awkward(_: Path) -> Prepared:
    import awkward as ak

    return {"ak": ak, "ragged": ak.Array([[1.5], [2, 3]])}, np.array([[1.5, 0], [2, 3]])


def dask(_: Path) -> Prepared:
    import dask.array

    return {"lazy": dask.array.from_array(VALUES) + 1}, VALUES + 1


def datasets(_: Path) -> Prepared:
    import datasets

    rows = datasets.Dataset.from_dict({"x": COLUMN, "name": list("abcdef")})
    return {"dataset": rows}, COLUMN


def einops(_: Path) -> Prepared:
    import einops

    return {"einops": einops}, VALUES.T


def equinox(_: Path) -> Prepared:
    import equinox
    import jax

    module = equinox.nn.Linear(3, 2, key=jax.random.key(0))
    return {"module": module}, np.asarray(module.weight)


def flax(_: Path) -> Prepared:
    import jax
    from flax import linen

    params = linen.Dense(3).init(jax.random.key(0), VALUES)
    return {"params": params}, np.asarray(params["params"]["kernel"])


def h5py(folder: Path) -> Prepared:
    import h5py

    file = h5py.File(folder / "x.h5", "w")
    file["x"] = VALUES
    return {"file": file}, VALUES


def imageio(folder: Path) -> Prepared:
    import imageio.v3 as iio

    iio.imwrite(folder / "x.png", IMAGE)
    return {"iio": iio, "path": folder / "x.png"}, IMAGE


def joblib(_: Path) -> Prepared:
    import joblib

    return {"joblib": joblib}, VALUES


def keras(_: Path) -> Prepared:
    import keras

    return {"variable": keras.Variable(VALUES)}, VALUES


def matplotlib(_: Path) -> Prepared:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.2, 0.1), dpi=100, facecolor=(1, 0, 0))
    FigureCanvasAgg(figure).draw()
    return {"figure": figure}, np.full((10, 20, 4), [255, 0, 0, 255], np.uint8)


def mpi4py(_: Path) -> Prepared:
    from mpi4py import MPI

    return {"world": MPI.COMM_SELF}, VALUES


def netcdf4(folder: Path) -> Prepared:
    import netCDF4

    file = netCDF4.Dataset(folder / "x.nc", "w")
    file.createDimension("n", 6)
    variable = file.createVariable("x", "f4", ("n",))
    variable[:] = np.ma.masked_array(COLUMN, COLUMN == 2)
    return {"variable": variable, "file": file}, np.where(COLUMN == 2, 0, COLUMN)


def networkx(_: Path) -> Prepared:
    import networkx

    return {"networkx": networkx, "graph": networkx.path_graph(3)}, np.array(
        [[0, 1, 0], [1, 0, 1], [0, 1, 0]], np.float32
    )


def numba(_: Path) -> Prepared:
    import numba

    return {"compiled": numba.njit(lambda x: x * 2)}, VALUES * 2


def onnx(_: Path) -> Prepared:
    import onnx.numpy_helper

    return {"onnx": onnx, "proto": onnx.numpy_helper.from_array(VALUES)}, VALUES


def onnxruntime(_: Path) -> Prepared:
    import onnxruntime

    # The value does not own the memory of the array.
    return {"value": onnxruntime.OrtValue.ortvalue_from_numpy(VALUES)}, VALUES


def opencv(_: Path) -> Prepared:
    import cv2

    return {"cv2": cv2, "image": IMAGE}, IMAGE[..., ::-1]


def optax(_: Path) -> Prepared:
    import jax.numpy as jnp
    import optax

    optimiser = optax.adam(0.1, b1=0.5)
    params = {"x": jnp.zeros((2, 3))}
    _, state = optimiser.update({"x": jnp.asarray(VALUES)}, optimiser.init(params))
    return {"state": state}, VALUES / 2


def pandas(_: Path) -> Prepared:
    import pandas

    return {"frame": pandas.DataFrame({"x": COLUMN}, index=list("abcdef"))}, COLUMN


def pillow(_: Path) -> Prepared:
    import PIL.Image

    return {"image": PIL.Image.fromarray(IMAGE)}, IMAGE


def pint(_: Path) -> Prepared:
    import pint

    return {"quantity": pint.UnitRegistry().Quantity(VALUES, "m")}, VALUES


def polars(_: Path) -> Prepared:
    import polars

    return {"frame": polars.DataFrame({"x": COLUMN})}, COLUMN


def pyarrow(_: Path) -> Prepared:
    import pyarrow

    return {"table": pyarrow.table({"x": COLUMN})}, COLUMN


def safetensors(folder: Path) -> Prepared:
    import safetensors.numpy

    safetensors.numpy.save_file({"x": VALUES}, folder / "x.safetensors")
    return {"path": folder / "x.safetensors"}, VALUES


def scikit_learn(_: Path) -> Prepared:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(VALUES)
    return {"scaler": scaler}, VALUES * VALUES.std(0) + VALUES.mean(0)


def sparse(_: Path) -> Prepared:
    import sparse

    return {"coo": sparse.COO.from_numpy(VALUES)}, VALUES


def torchvision(_: Path) -> Prepared:
    from torchvision import tv_tensors

    return {"image": tv_tensors.Image(torch.from_numpy(IMAGE))}, IMAGE


def transformers(_: Path) -> Prepared:
    import transformers

    sizes = {"vocab_size": 9, "hidden_size": 4, "intermediate_size": 4}
    config = transformers.BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=1)
    model, tokens = transformers.BertModel(config).eval(), torch.arange(6).reshape(2, 3)
    expected = model(tokens).last_hidden_state.detach().numpy()
    return {"model": model, "tokens": tokens}, expected


def uncertainties(_: Path) -> Prepared:
    from uncertainties import unumpy

    return {"unumpy": unumpy, "measured": unumpy.uarray(VALUES, VALUES)}, VALUES.astype("float64")


def xarray(_: Path) -> Prepared:
    import xarray

    return {"array": xarray.DataArray(VALUES, dims=("a", "b"))}, VALUES


def zarr(folder: Path) -> Prepared:
    import zarr

    array = zarr.create_array(folder / "x.zarr", data=VALUES)
    return {"array": array}, VALUES


PREPARE: dict[str, Callable[[Path], Prepared]] = {
    "accelerate": accelerate,
    "astropy": astropy,
    "awkward": awkward,
    "Dask": dask,
    "einops": einops,
    "equinox": equinox,
    "flax": flax,
    "h5py": h5py,
    "Hugging Face datasets": datasets,
    "imageio": imageio,
    "joblib": joblib,
    "Keras": keras,
    "matplotlib": matplotlib,
    "mpi4py": mpi4py,
    "netCDF4": netcdf4,
    "networkx": networkx,
    "Numba": numba,
    "onnx": onnx,
    "ONNX Runtime": onnxruntime,
    "OpenCV": opencv,
    "optax": optax,
    "pandas": pandas,
    "Pillow": pillow,
    "pint": pint,
    "polars": polars,
    "pyarrow": pyarrow,
    "safetensors": safetensors,
    "scikit-learn": scikit_learn,
    "sparse": sparse,
    "torchvision": torchvision,
    "transformers": transformers,
    "uncertainties": uncertainties,
    "xarray": xarray,
    "zarr": zarr,
}


def test_every_row_has_a_test() -> None:
    assert ROWS.keys() == PREPARE.keys()


@pytest.mark.parametrize("library", PREPARE)
def test_the_code_of_a_row(library: str, tmp_path: Path) -> None:
    names, expected = PREPARE[library](tmp_path)
    result = eval(ROWS[library], {"ferry": ferry, "x": torch.from_numpy(VALUES.copy()), **names})
    assert type(result).__module__.partition(".")[0] in ("torch", "jaxlib")
    found = ferry.to(result.detach() if isinstance(result, torch.Tensor) else result, "numpy")
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6)
