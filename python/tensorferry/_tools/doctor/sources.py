"""The tensors that the doctor carries, each made without the library's help.

Were a source itself the work of `ferry.to`, a fault in that would look like a fault of the
framework, or not be seen.
"""

import importlib
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry._tools import introspect, samples


class NoSourceError(Exception):
    """Why a framework has no such tensor."""


def make(framework: str, array: np.ndarray[Any, Any], dtype: str, device: str, seed: int) -> Any:
    """A framework's own tensor with the values of an array, which are those of the seed."""
    try:
        x = _make(framework, array, dtype, device, seed)
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, ferry.FerryError):
            raise
        raise NoSourceError(
            f"{framework} makes no {dtype}: {' '.join(str(error).split())}"
        ) from error
    if (made := introspect.dtype(framework, x)) != dtype:
        raise NoSourceError(f"{framework} makes {made} of {dtype}")
    if (place := introspect.place(framework, x)) != device:
        raise NoSourceError(f"{framework} keeps {dtype} on {place}")
    return x


def _make(framework: str, array: np.ndarray[Any, Any], dtype: str, device: str, seed: int) -> Any:
    if framework == "numpy":
        return array.copy()
    if framework not in ("paddle", "mlx"):
        return samples.make(framework, array.shape, dtype=dtype, device=device, seed=seed)
    # Neither knows what ml_dtypes calls bfloat16.
    bits = array.view(np.uint16) if dtype == "bfloat16" else array
    if framework == "paddle":
        paddle = importlib.import_module("paddle")
        return paddle.to_tensor(bits, place=paddle.CPUPlace())
    core = importlib.import_module("mlx.core")
    kind = core.bool_ if dtype == "bool" else getattr(core, dtype)
    return core.array(bits, core.uint16 if dtype == "bfloat16" else kind).view(kind)
