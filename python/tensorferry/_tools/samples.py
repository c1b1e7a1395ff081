"""Sample tensors with random values, of any framework, layout, type and device.

Each is made by the framework's own constructor, in memory that the framework has allocated, like
the tensors of users.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tensorferry as ferry
from tensorferry._tools import machine
from tensorferry.framework_register import load

LAYOUTS = ("dense", "transposed", "strided", "sliced", "reversed", "broadcast")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of a type's name."""
    if dtype not in DTYPES:
        raise ferry.InvalidArgumentError(
            f"unknown type {dtype!r}\nhint: write one of {', '.join(DTYPES)}"
        )
    return np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)


def values(shape: Sequence[int], dtype: str, *, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random values that a type represents exactly."""
    kind = numpy_dtype(dtype)
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape, dtype=np.uint8).astype(np.bool_)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    if kind.kind == "c":
        parts = random.standard_normal((*shape, 2), dtype=np.float32)
        return np.ascontiguousarray(parts).view(np.complex64)[..., 0].astype(kind)
    return random.standard_normal(shape, dtype=np.float32).astype(kind)


def zeros(shape: Sequence[int], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of zeros whose pages are not touched."""
    size = math.prod(shape) * kind.itemsize
    if size > machine.free_memory() * 0.9:
        raise ferry.OutOfMemoryError(
            f"a tensor of {size} bytes exceeds the free memory\nhint: write a smaller shape"
        )
    return np.zeros(shape, kind)


def make(
    framework: str,
    shape: Sequence[int],
    *,
    dtype: str = "float32",
    layout: str = "dense",
    device: str = "cpu",
    seed: int | None = 0,
) -> Any:
    """A tensor of a framework with random values, or with zeros if `seed` is None."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise ferry.InvalidArgumentError(
            f"unknown device {device!r}\nhint: write cpu, cuda or cuda:1"
        )
    if layout not in LAYOUTS:
        raise ferry.InvalidArgumentError(
            f"unknown layout {layout!r}\nhint: write one of {', '.join(LAYOUTS)}"
        )
    load(framework)
    base = _base_shape(tuple(shape), layout)
    array = zeros(base, numpy_dtype(dtype))
    if seed is not None:
        array[...] = values(base, dtype, seed=seed)
    dense = _dense_on_device(framework, array, dtype, device)
    try:
        return _with_layout(framework, dense, tuple(shape), layout)
    except (TypeError, ValueError, IndexError) as error:
        raise ferry.UnsupportedError(
            f"{framework} has no {layout} tensors: {error}\nhint: write --layout dense"
        ) from error


def _base_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The shape of the dense tensor that the result is a view of."""
    if layout == "dense" or not shape:
        return shape
    if layout == "transposed":
        return tuple(reversed(shape))
    if layout == "strided":
        return (*shape[:-1], 2 * shape[-1])
    if layout == "sliced":
        return (shape[0] + 2, *shape[1:])
    if layout == "broadcast":
        return (1, *shape[1:])
    return shape


def _with_layout(framework: str, x: Any, shape: tuple[int, ...], layout: str) -> Any:
    if layout == "dense" or not shape:
        return x
    if layout != "sliced" and framework in ("jax", "tensorflow", "mlx"):
        raise TypeError("its views are new dense tensors")
    if layout == "transposed":
        return x.permute(*reversed(range(len(shape)))) if framework == "torch" else x.T
    if layout == "strided":
        return x[..., ::2]
    if layout == "sliced":
        return x[1:-1]
    if layout == "broadcast":
        module = load(framework)
        return (
            x.expand(shape) if framework in ("torch", "paddle") else module.broadcast_to(x, shape)
        )
    return x[::-1]


def _dense_on_device(framework: str, array: np.ndarray[Any, Any], dtype: str, device: str) -> Any:
    """The framework's own copy of an array, on the requested device."""
    try:
        made = _dense(framework, array, dtype, device)
    except (RuntimeError, AssertionError, ValueError) as error:
        if isinstance(error, ferry.FerryError) or device == "cpu":
            raise
        reason = " ".join(str(error).split())
        raise ferry.UnsupportedError(
            f"{framework} cannot use {device} here: {reason}\nhint: run tensorferry doctor"
        ) from error
    found = ferry.plan(made, framework).source_device
    if found.partition(":")[0] != device.partition(":")[0]:
        raise ferry.UnsupportedError(
            f"{framework} made a {dtype} tensor on {found} instead of {device}"
            "\nhint: run tensorferry doctor"
        )
    return made


def _dense(framework: str, array: np.ndarray[Any, Any], dtype: str, device: str) -> Any:
    """The framework's own copy of an array."""
    module = load(framework)
    kind, _, index = device.partition(":")
    if framework == "numpy":
        if kind != "cpu":
            raise ferry.UnsupportedError(
                f"NumPy holds host memory only, and a source on {device} was requested"
                "\nhint: leave out --from-device, or choose torch or cupy as the source"
            )
        return array
    if framework == "torch":
        same_bits = array.view(np.uint16) if dtype == "bfloat16" else array
        tensor = module.from_numpy(same_bits).clone()
        return (tensor.view(module.bfloat16) if dtype == "bfloat16" else tensor).to(device)
    if framework == "cupy":
        with module.cuda.Device(int(index or 0)):
            return module.asarray(array)
    if framework == "jax":
        jax_device = module.devices("cuda" if kind == "cuda" else "cpu")[int(index or 0)]
        made = module.device_put(array, jax_device)
        if str(made.dtype) != dtype:
            raise ferry.UnsupportedDTypeError(
                f"JAX does not support {dtype} while jax_enable_x64 is off"
                "\nhint: set JAX_ENABLE_X64=1"
            )
        return made
    if framework == "tensorflow":
        with module.device("/GPU:" + (index or "0") if kind == "cuda" else "/CPU:0"):
            return module.identity(module.constant(array))
    return ferry.to(array, framework, device=device, copy=True)
