"""Whether a method did its job: right framework, right place, right type, and every bit.

Nothing here goes through tensorferry: results are read by their own framework's road to the host.
"""

import ctypes
from typing import Any

import numpy as np

from tensorferry import samples

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
# Where a DLPack tensor has the distance of its first element from its memory.
_BYTE_OFFSET = 40


def fault(found: Any, target: str, device: str, x: Any, expected: np.ndarray[Any, Any]) -> str:
    """What is wrong with a result, in words; empty where nothing is.

    `expected` are the bytes of the values of the source `x`, as `bits` gives them.
    """
    kind = _kind(target)
    if not isinstance(found, kind):
        return f"gives a {type(found).__module__}.{type(found).__name__}, not a tensor of {target}"
    if (place := place_of(found, target)) != device:
        return f"gives a tensor on {place}, not on {device}"
    wanted = dtype_of(x)
    if (dtype := dtype_of(found)) != wanted:
        return f"gives {dtype}, not {wanted}"
    if tuple(found.shape) != tuple(x.shape):
        return f"gives the shape {tuple(found.shape)}, not {tuple(x.shape)}"
    if not np.array_equal(bits(found, target), expected):
        return "gives wrong values"
    return ""


def _kind(framework: str) -> Any:
    module = samples.load(framework)
    kinds = {"numpy": "ndarray", "cupy": "ndarray", "jax": "Array", "mlx": "array"}
    return getattr(module, kinds.get(framework, "Tensor"))


def dtype_of(x: Any) -> str:
    """The name of the element type, which all frameworks have in common."""
    name = getattr(x.dtype, "name", None) or str(x.dtype)
    return str(name).rpartition(".")[2].removesuffix("_").lower()


def place_of(x: Any, framework: str) -> str:
    """`cpu` or `cuda`."""
    if framework == "torch":
        return str(x.device.type)
    if framework == "cupy":
        return "cuda"
    if framework == "jax":
        platform = next(iter(x.devices())).platform
        return "cuda" if platform == "gpu" else str(platform)
    if framework == "tensorflow":
        return "cuda" if "GPU" in x.backing_device else "cpu"
    if framework == "paddle":
        return "cuda" if x.place.is_gpu_place() else "cpu"
    return "cpu"


def bits(x: Any, framework: str) -> np.ndarray[Any, Any]:
    """The bytes of the values in row-major order."""
    return np.ascontiguousarray(_home(x, framework)).reshape(-1).view(np.uint8)


def _home(x: Any, framework: str) -> Any:
    if framework == "torch":
        torch = samples.load(framework)
        # As bytes, because NumPy has no bfloat16 of its own.
        return x.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    if framework == "cupy":
        return x.get()
    if framework == "tensorflow":
        return x.numpy()
    if framework == "paddle":
        return x.detach().numpy()
    if framework == "mlx" and dtype_of(x) == "bfloat16":
        mx = samples.load(framework)
        return np.array(mx.contiguous(x).view(mx.uint16))
    return np.asarray(x)


def shares(x: Any, source: str, found: Any, target: str) -> bool | None:
    """Whether a result is over the source's memory; None where one of them does not say."""
    if place_of(x, source) != place_of(found, target):
        return False
    try:
        return _address(x, source) == _address(found, target)
    except Exception:  # what cannot be exported, each framework refuses in words of its own
        return None


def _address(x: Any, framework: str) -> int:
    """Where the first element is."""
    if framework == "numpy":
        return int(x.__array_interface__["data"][0])
    if framework == "cupy":
        return int(x.data.ptr)
    if framework in ("torch", "paddle"):
        return int(x.data_ptr())
    if framework == "jax":
        return int(x.unsafe_buffer_pointer())
    if framework == "tensorflow":
        return _address_in(samples.load(framework).experimental.dlpack.to_dlpack(x))
    return _address_in(x.__dlpack__())


def _address_in(capsule: Any) -> int:
    tensor = _capsule_pointer(capsule, b"dltensor")
    if tensor is None:
        raise ValueError("no tensor in the capsule")
    data = ctypes.c_void_p.from_address(tensor).value or 0
    return data + int(ctypes.c_uint64.from_address(tensor + _BYTE_OFFSET).value)
