"""How each framework shows its own tensors, through its own functions and never through ours.

What was carried is checked with these, so that a fault of the library cannot hide itself.
"""

import ctypes
import importlib
import pkgutil
import re
import warnings
from typing import Any, TypedDict


class Seen(TypedDict):
    """What a framework says about the devices that it can use."""

    devices: list[tuple[str, str | None]]
    for_cuda: bool
    note: str | None


def devices(framework: str, module: Any) -> Seen:
    """The devices that it sees, whether it was built for GPUs, and what it says about them."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found, for_cuda, note = {
            "torch": _torch_devices,
            "cupy": _cupy_devices,
            "jax": _jax_devices,
            "tensorflow": _tensorflow_devices,
        }.get(framework, _host_alone)(module)
    if said and not note:
        note = str(said[-1].message)
    return Seen(devices=found, for_cuda=for_cuda, note=_one_line(note))


_Found = tuple[list[tuple[str, str | None]], bool, str | None]


def _host_alone(_module: Any) -> _Found:
    return [("cpu", None)], False, None


def _torch_devices(torch: Any) -> _Found:
    found: list[tuple[str, str | None]] = [("cpu", None)]
    for_cuda = getattr(torch.version, "cuda", None) is not None
    if for_cuda and torch.cuda.is_available():
        count = torch.cuda.device_count()
        found += [(f"cuda:{index}", torch.cuda.get_device_name(index)) for index in range(count)]
    return found, for_cuda, None


def _cupy_devices(cupy: Any) -> _Found:
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except Exception as error:  # the class is CuPy's own
        return [], True, str(error)
    names = [runtime.getDeviceProperties(index)["name"] for index in range(count)]
    return [(f"cuda:{index}", _text(name)) for index, name in enumerate(names)], True, None


def _jax_devices(jax: Any) -> _Found:
    found: list[tuple[str, str | None]] = []
    note = None
    for platform in ("cpu", "cuda"):
        try:
            seen = jax.local_devices(backend=platform)
        except RuntimeError as error:
            note = str(error)
            continue
        if platform == "cpu":
            found.append(("cpu", None))
        else:
            found += [(f"cuda:{index}", device.device_kind) for index, device in enumerate(seen)]
    for_cuda = _has_cuda_plugin()
    platforms = jax.config.jax_platforms
    if platforms and not re.search("cuda|gpu", platforms):
        return found, False, f"it is told to use {platforms} (JAX_PLATFORMS)"
    return found, for_cuda, note if for_cuda else None


def _has_cuda_plugin() -> bool:
    try:
        plugins = importlib.import_module("jax_plugins")
    except ImportError:
        return False
    return any("cuda" in module.name for module in pkgutil.iter_modules(plugins.__path__))


def _tensorflow_devices(tensorflow: Any) -> _Found:
    found: list[tuple[str, str | None]] = [("cpu", None)]
    for index, device in enumerate(tensorflow.config.list_physical_devices("GPU")):
        details = tensorflow.config.experimental.get_device_details(device)
        found.append((f"cuda:{index}", details.get("device_name")))
    # Its usual build is for GPUs, whether the CUDA libraries are there or not: that it sees none
    # may be as it should.
    note = "its CUDA libraries are missing, or do not fit the driver"
    return found, False, note if tensorflow.test.is_built_with_cuda() else None


def place(framework: str, x: Any) -> str:
    """Where a tensor is: `cpu`, `cuda:0`."""
    if framework == "torch":
        return "cpu" if x.device.type == "cpu" else f"{x.device.type}:{x.device.index}"
    if framework == "cupy":
        return f"cuda:{x.data.device_id}"
    if framework == "jax":
        device = next(iter(x.devices()))
        if device.platform == "cpu":
            return "cpu"
        return f"cuda:{importlib.import_module('jax').local_devices(backend='cuda').index(device)}"
    if framework == "tensorflow":
        on_gpu = re.search(r"GPU:(\d+)", x.backing_device)
        return f"cuda:{on_gpu[1]}" if on_gpu else "cpu"
    if framework == "paddle" and x.place.is_gpu_place():
        return f"cuda:{x.place.gpu_device_id()}"
    return "cpu"


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
    if framework in ("tensorflow", "paddle"):
        return bytes(x.numpy().tobytes())
    if framework == "mlx":
        core = importlib.import_module("mlx.core")
        return np.array(x.view(core.uint16) if x.dtype == core.bfloat16 else x).tobytes()
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


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _one_line(text: str | None) -> str | None:
    return " ".join(text.split())[:200] if text else None
