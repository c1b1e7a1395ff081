"""How each framework shows its own tensors, through its own functions and never through ours.

What was carried is checked with these, so that a fault of the library cannot hide itself.
"""

import ctypes
import importlib
from typing import Any


def place(framework: str, x: Any) -> str:
    """Where a tensor is: `cpu`, `cpu:1`, `cuda:0`."""
    if framework == "torch":
        return "cpu" if x.device.type == "cpu" else f"{x.device.type}:{x.device.index}"
    if framework == "cupy":
        return f"cuda:{x.data.device_id}"
    if framework == "jax":
        device = next(iter(x.devices()))
        if device.platform == "cpu":
            return _cpu(importlib.import_module("jax").local_devices(backend="cpu").index(device))
        return f"cuda:{importlib.import_module('jax').local_devices(backend='cuda').index(device)}"
    if framework == "tensorflow":
        kind, _, index = x.backing_device.rpartition("device:")[2].partition(":")
        return f"cuda:{index}" if kind == "GPU" else _cpu(int(index))
    if framework == "paddle" and x.place.is_gpu_place():
        return f"cuda:{x.place.gpu_device_id()}"
    return "cpu"


def _cpu(index: int) -> str:
    return f"cpu:{index}" if index else "cpu"


def dtype(framework: str, x: Any) -> str:
    """The name of its element type."""
    if framework in ("torch", "paddle", "mlx"):
        return str(x.dtype).rpartition(".")[2].removesuffix("_")
    return str(x.dtype.name)


def values(framework: str, x: Any) -> bytes:
    """The values of a tensor, row by row, as bytes."""
    import numpy as np  # not above: this file is also for a process that looks at another framework

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
        plain = core.contiguous(x).view(core.uint16) if x.dtype == core.bfloat16 else x
        return np.array(plain).tobytes()
    return np.asarray(x).tobytes()


def address(framework: str, x: Any) -> int:
    """Where the memory of a tensor begins."""
    if framework == "numpy":
        return int(x.ctypes.data)
    if framework in ("torch", "paddle"):
        return int(x.data_ptr())
    if framework == "cupy":
        return int(x.data.ptr)
    if framework == "jax":
        return int(x.unsafe_buffer_pointer())
    if framework == "tensorflow":
        return _address_in(importlib.import_module("tensorflow").experimental.dlpack.to_dlpack(x))
    return _address_in(x.__dlpack__())


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


def _address_in(capsule: Any) -> int:
    """The address that a DLPack capsule names; the capsule is left as it was."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = name_of(capsule)
    tensor = _Tensor.from_address(pointer_of(capsule, name) + _BEFORE[name])
    return int(tensor.data or 0) + int(tensor.byte_offset)
