"""The tensors that the doctor converts, made without the library.

If `ferry.to` made the sources, its errors would look like errors of a framework, or be hidden.
"""

import importlib
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry._tools import introspect, samples


class NoSourceError(Exception):
    """A framework cannot make such a tensor."""


def make(framework: str, array: np.ndarray[Any, Any], dtype: str, device: str, seed: int) -> Any:
    """A framework's own tensor with the values of an array, which were made from the seed."""
    try:
        x = _make(framework, array, dtype, device, seed)
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, ferry.FerryError):
            raise
        raise NoSourceError(
            f"{framework} cannot make {dtype}: {' '.join(str(error).split())}"
        ) from error
    if (made := introspect.dtype(framework, x)) != dtype:
        raise NoSourceError(f"{framework} makes {made} instead of {dtype}")
    if (found := introspect.device(framework, x)) != device:
        raise NoSourceError(f"{framework} makes {dtype} on {found} instead of {device}")
    return x


def _make(framework: str, array: np.ndarray[Any, Any], dtype: str, device: str, seed: int) -> Any:
    if framework == "numpy":
        return array.copy()
    if framework not in ("paddle", "mlx"):
        return samples.make(framework, array.shape, dtype=dtype, device=device, seed=seed)
    # Neither accepts the bfloat16 of ml_dtypes.
    bits = array.view(np.uint16) if dtype == "bfloat16" else array
    if framework == "paddle":
        paddle = importlib.import_module("paddle")
        return paddle.to_tensor(bits, place=paddle.CPUPlace())
    core = importlib.import_module("mlx.core")
    kind = core.bool_ if dtype == "bool" else getattr(core, dtype)
    return core.array(bits, core.uint16 if dtype == "bfloat16" else kind).view(kind)
