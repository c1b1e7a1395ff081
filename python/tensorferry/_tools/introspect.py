"""Reading tensors without tensorferry: device, type, values and address by each framework itself.

The tools check conversions with these functions, so that an error of the library is not hidden by
the library.
"""

import ctypes
import importlib
from typing import Any


def device(framework: str, x: Any) -> str:
    """The device of a tensor: `cpu`, `cpu:1`, `cuda:0`."""
    if framework == "torch":
        return "cpu" if x.device.type == "cpu" else f"{x.device.type}:{x.device.index}"
    if framework == "cupy":
        return f"cuda:{x.data.device_id}"
    if framework == "jax":
        jax_device = next(iter(x.devices()))
        if jax_device.platform == "cpu":
            return _cpu(
                importlib.import_module("jax").local_devices(backend="cpu").index(jax_device)
            )
        return (
            f"cuda:{importlib.import_module('jax').local_devices(backend='cuda').index(jax_device)}"
        )
    if framework == "tensorflow":
        kind, _, index = x.backing_device.rpartition("device:")[2].partition(":")
        return f"cuda:{index}" if kind == "GPU" else _cpu(int(index))
    if framework == "paddle" and x.place.is_gpu_place():
        return f"cuda:{x.place.gpu_device_id()}"
    return "cpu"


def _cpu(index: int) -> str:
    return f"cpu:{index}" if index else "cpu"


def dtype(framework: str, x: Any) -> str:
    """The name of a tensor's element type."""
    if framework in ("torch", "paddle", "mlx"):
        return str(x.dtype).rpartition(".")[2].removesuffix("_")
    return str(x.dtype.name)


def values(framework: str, x: Any) -> bytes:
    """The values of a tensor as bytes, in row-major order."""
    import numpy as np  # deferred: some processes must not import NumPy

    if framework == "torch":
        flat = x.detach().contiguous().reshape(-1)
        return bytes(flat.view(importlib.import_module("torch").uint8).cpu().numpy().tobytes())
    if framework == "cupy":
        return bytes(x.get().tobytes())
    if framework == "tensorflow":
        return bytes(x.numpy().tobytes())
    if framework == "paddle":
        return bytes(x.detach().numpy().tobytes())
    if framework == "mlx":
        core = importlib.import_module("mlx.core")
        # NumPy cannot read MLX's bfloat16.
        readable = core.contiguous(x).view(core.uint16) if x.dtype == core.bfloat16 else x
        return np.array(readable).tobytes()
    return np.asarray(x).tobytes()


def address(framework: str, x: Any) -> int:
    """The address of a tensor's first element."""
    if framework == "numpy":
        return int(x.ctypes.data)
    if framework in ("torch", "paddle"):
        return int(x.data_ptr())
    if framework == "cupy":
        return int(x.data.ptr)
    if framework == "jax":
        return int(x.unsafe_buffer_pointer())
    if framework == "tensorflow":
        return _capsule_address(
            importlib.import_module("tensorflow").experimental.dlpack.to_dlpack(x)
        )
    return _capsule_address(x.__dlpack__())


class _Tensor(ctypes.Structure):
    """A DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


# Before the tensor a versioned one has: version, context, deleter and flags.
_BEFORE = {b"dltensor": 0, b"dltensor_versioned": 32}


def _capsule_address(capsule: Any) -> int:
    """The address in a DLPack capsule, which stays unused."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = name_of(capsule)
    tensor = _Tensor.from_address(pointer_of(capsule, name) + _BEFORE[name])
    return int(tensor.data or 0) + int(tensor.byte_offset)
