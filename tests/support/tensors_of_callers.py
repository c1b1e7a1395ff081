"""Tensors of several frameworks for decorated functions, and checks of their errors."""

from __future__ import annotations

import array
import time

import jax
import mlx.core as mx
import numpy as np
import onnxruntime
import paddle
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
import torch
import xarray as xr

import tensorferry as ferry

KINDS = {
    "numpy": np.ndarray,
    "torch": torch.Tensor,
    "jax": jax.Array,
    "tensorflow": tf.Tensor,
    "paddle": paddle.Tensor,
    "mlx": mx.array,
}


class OnlyArray:
    """Has `__array__` and nothing else."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3, dtype=np.float32)


#: Objects of other libraries that `ferry.to` converts; each holds 0, 1 and 2.
CONVERTED = {
    "__array__": OnlyArray,
    "xarray": lambda: xr.DataArray(np.arange(3, dtype=np.float32), dims="x"),
    "xarray.Variable": lambda: xr.Variable("x", np.arange(3, dtype=np.float32)),
    "pandas": lambda: pd.Series(np.arange(3, dtype=np.float32)),
    "polars": lambda: pl.Series([0, 1, 2], dtype=pl.Float32),
    "pyarrow": lambda: pa.array(np.arange(3, dtype=np.float32)),
    "array.array": lambda: array.array("f", [0, 1, 2]),
    "memoryview": lambda: memoryview(np.arange(3, dtype=np.float32)),
    "masked array without a mask": lambda: np.ma.array(np.arange(3, dtype=np.float32)),
    "ONNX Runtime": lambda: onnxruntime.OrtValue.ortvalue_from_numpy(
        np.arange(3, dtype=np.float32)
    ),
}


def tensor(framework: str, start: float = 0.0):
    return ferry.to(np.arange(start, start + 3, dtype=np.float32), framework, copy=True)


def is_tensor(x, framework: str, start: float = 0.0) -> bool:
    values = ferry.to(x, "numpy").tolist()
    return isinstance(x, KINDS[framework]) and values == [start, start + 1, start + 2]


def refused(call, *says: str) -> None:
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        call()
    fact, hint = str(caught.value).split("\n")
    assert hint.startswith("hint: ")
    for words in says:
        assert words in fact + hint


def is_faster(call, factor: float, baseline) -> bool:
    """Whether `call` takes less than `factor` times as long as `baseline`. Load on the machine only
    adds to a time, so the minima over all attempts are compared."""
    seconds = baseline_seconds = float("inf")
    for _ in range(20):
        seconds = min(seconds, _min_seconds(call))
        baseline_seconds = min(baseline_seconds, _min_seconds(baseline))
        if seconds < factor * baseline_seconds:
            return True
    return False


def _min_seconds(call) -> float:
    best = float("inf")
    for _ in range(40):
        begin = time.perf_counter()
        for _ in range(200):
            call()
        best = min(best, (time.perf_counter() - begin) / 200)
    return best
