"""What a child of the doctor's does: `python -m tensorferry._tools.doctor.probe FD PROBE ...`.

It tells what it finds on the given file descriptor, one JSON object to a line, each at once: it may
not live to tell it later. It says what it is about to do before it does it.
"""

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Tell = Callable[..., None]

DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Does one probe."""
    pipe, probe, *arguments = sys.argv[1:]
    _leave_nothing_behind()
    # Not for the children of a framework, which may outlive us.
    os.set_inheritable(int(pipe), False)

    def tell(kind: str, **facts: Any) -> None:
        os.write(int(pipe), json.dumps({"kind": kind, **facts}).encode() + b"\n")

    try:
        PROBES[probe](tell, *arguments)
    except BaseException as error:
        tell("failed", error=describe(error))
    # How frameworks leave is not what was asked, and takes seconds.
    os._exit(0)


def _leave_nothing_behind() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def framework(tell: Tell, name: str, module: str) -> None:
    """Is it installed, does it import, and what does it see?"""
    if not is_installed(module):
        tell("absent")
        return
    start = time.perf_counter()
    imported = importlib.import_module(module)
    seconds = time.perf_counter() - start
    version = getattr(imported, "__version__", None)
    tell("imported", seconds=seconds, version=None if version is None else str(version))
    from tensorferry._tools.doctor.devices import devices

    tell("devices", **devices(name, imported))


def is_installed(module: str) -> bool:
    """Whether there is something to import; folders without code are nobody's module."""
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return False
    return spec is not None and spec.origin is not None


def load(tell: Tell, modules: str) -> None:
    """Do these import, one after the other?"""
    for name, module in json.loads(modules):
        tell("loading", framework=name)
        importlib.import_module(module)
        tell("loaded", framework=name)


def cells(tell: Tell, modules: str, wanted: str, dtype: str) -> None:
    """Carries a tensor for each cell, with all of these modules loaded."""
    load(tell, modules)
    from tensorferry._tools.doctor.conversion import carry
    from tensorferry._tools.doctor.findings import Cell

    for number, words in enumerate(json.loads(wanted)):
        tell("carrying", number=number)
        result = carry(Cell(*words), dtype, seed=number)
        tell(
            "carried",
            number=number,
            outcome=result.outcome,
            fact=result.fact,
            hint=result.hint,
            memory=result.memory,
        )
    from tensorferry._tools.doctor import fast_paths

    # Told twice: the child may not live to tell it after what it does next.
    tell("fast_paths", paths=fast_paths.states())
    fast_paths.exercise()
    tell("fast_paths", paths=fast_paths.states())


def pinned(tell: Tell, modules: str, device: str) -> None:
    """Is memory pinned for downloads?"""
    load(tell, modules)
    from tensorferry._tools.doctor import conversion

    ((name, _),) = json.loads(modules)
    tell("pinned", pinned_bytes=conversion.pinned(name, device))


def driver(tell: Tell) -> None:
    """The CUDA driver itself, without any framework."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if "No such file" in str(error):
            tell("absent")
        else:
            tell("failed", error=describe(error))
        return
    version, count = ctypes.c_int(), ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        tell("version", cuda=f"{version.value // 1000}.{version.value % 1000 // 10}")
    status = library.cuInit(0)
    if status == NO_DEVICE:
        tell("gpus", gpus=[])
        return
    if status == 0:
        status = library.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        tell("failed", error=f"{_error_name(library, status)} (error {status})")
        return
    tell("gpus", gpus=[_gpu(library, index) for index in range(count.value)])


NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...


def _gpu(library: Any, index: int) -> dict[str, Any]:
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    found: dict[str, Any] = dict.fromkeys(("name", "memory_bytes", "capability"))
    library.cuDeviceGet(ctypes.byref(device), index)
    # A driver that lacks one of these is still a driver.
    with contextlib.suppress(AttributeError):
        if library.cuDeviceGetName(name, len(name), device) == 0:
            found["name"] = name.value.decode(errors="replace")
    with contextlib.suppress(AttributeError):
        if library.cuDeviceTotalMem_v2(ctypes.byref(memory), device) == 0:
            found["memory_bytes"] = memory.value
    with contextlib.suppress(AttributeError):
        ask = library.cuDeviceGetAttribute
        if (
            ask(ctypes.byref(major), MAJOR, device) == 0
            and ask(ctypes.byref(minor), MINOR, device) == 0
        ):
            found["capability"] = f"{major.value}.{minor.value}"
    return {"index": index, **found}


def _error_name(library: Any, status: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorName(status, ctypes.byref(text))
    return (text.value or b"an error without a name").decode(errors="replace")


def describe(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


PROBES: dict[str, Callable[..., None]] = {
    "framework": framework,
    "load": load,
    "cells": cells,
    "pinned": pinned,
    "driver": driver,
}

if __name__ == "__main__":
    main()
