"""The devices that each framework reports."""

import importlib
import pkgutil
import re
import warnings
from typing import Any, TypedDict


class DeviceReport(TypedDict):
    """What a framework reports about its devices."""

    devices: list[tuple[str, str | None]]
    for_cuda: bool
    note: str | None


def devices(framework: str, module: Any) -> DeviceReport:
    """The devices of a framework, whether it was built for GPUs, and its note about them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found, for_cuda, note = {
            "torch": _torch_devices,
            "cupy": _cupy_devices,
            "jax": _jax_devices,
            "tensorflow": _tensorflow_devices,
        }.get(framework, _host_only)(module)
    if caught and not note:
        note = str(caught[-1].message)
    return DeviceReport(devices=found, for_cuda=for_cuda, note=_one_line(note))


_Found = tuple[list[tuple[str, str | None]], bool, str | None]


def _host_only(_module: Any) -> _Found:
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
    except Exception as error:  # a class of CuPy
        return [], True, str(error)
    names = [runtime.getDeviceProperties(index)["name"] for index in range(count)]
    return [(f"cuda:{index}", _text(name)) for index, name in enumerate(names)], True, None


def _jax_devices(jax: Any) -> _Found:
    found: list[tuple[str, str | None]] = []
    note = None
    for platform in ("cpu", "cuda"):
        try:
            local = jax.local_devices(backend=platform)
        except RuntimeError as error:
            note = str(error)
            continue
        if platform == "cpu":
            found.append(("cpu", None))
        else:
            found += [(f"cuda:{index}", device.device_kind) for index, device in enumerate(local)]
    for_cuda = _has_cuda_plugin()
    platforms = jax.config.jax_platforms
    if platforms and not re.search("cuda|gpu", platforms):
        return found, False, f"JAX_PLATFORMS selects {platforms}"
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
    # Its default build supports GPUs, with or without CUDA libraries: seeing none is no error.
    note = "its CUDA libraries are missing, or do not match the driver"
    return found, False, note if tensorflow.test.is_built_with_cuda() else None


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _one_line(text: str | None) -> str | None:
    return " ".join(text.split())[:200] if text else None
