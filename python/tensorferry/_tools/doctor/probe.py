"""The program of a child process: `python -m tensorferry._tools.doctor.probe FD PROBE ...`.

It writes findings to the file descriptor, one JSON object per line, each immediately, because it
may crash. It reports what it is about to do before it does it.
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

Report = Callable[..., None]

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Runs one probe."""
    pipe, probe, *arguments = sys.argv[1:]
    _limit_side_effects()
    # Child processes of a framework may outlive this one, and must not keep the pipe open.
    os.set_inheritable(int(pipe), False)

    def report(kind: str, **description: Any) -> None:
        os.write(int(pipe), json.dumps({"kind": kind, **description}).encode() + b"\n")

    try:
        PROBES[probe](report, *arguments)
    except BaseException as error:
        report("failed", error=describe(error))
    # Skips the exit handlers of frameworks, which take seconds.
    os._exit(0)


def _limit_side_effects() -> None:
    """Disables core dumps, and ends this process with its parent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def framework(report: Report, name: str, module: str, modules: str = "[]") -> None:
    """Reports whether a framework is installed and imports, and its devices.

    Then imports other modules, which may end the process: a framework that was imported alone is
    the start of such an order, so it is not imported once more in a process of its own.
    """
    if not is_installed(module):
        report("absent")
        return
    start = time.perf_counter()
    imported = importlib.import_module(module)
    seconds = time.perf_counter() - start
    version = getattr(imported, "__version__", None)
    report("imported", seconds=seconds, version=None if version is None else str(version))
    from tensorferry._tools.doctor.devices import devices

    report("devices", **devices(name, imported))
    load(report, modules)


def is_installed(module: str) -> bool:
    """Whether a module can be imported; a namespace package without code does not count."""
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return False
    return spec is not None and spec.origin is not None


def load(report: Report, modules: str) -> None:
    """Imports modules in the given order."""
    for name, module in json.loads(modules):
        report("importing", framework=name)
        importlib.import_module(module)
        report("imported", framework=name)


def cells(report: Report, modules: str, wanted: str, dtype: str) -> None:
    """Converts a tensor for each cell, after importing the modules."""
    load(report, modules)
    from tensorferry._tools.doctor.conversion import convert_cell
    from tensorferry._tools.doctor.findings import Cell

    for number, fields in enumerate(json.loads(wanted)):
        report("converting", number=number)
        result = convert_cell(Cell(*fields), dtype, seed=number)
        report(
            "converted",
            number=number,
            outcome=result.outcome,
            fact=result.fact,
            hint=result.hint,
            memory=result.memory,
        )
    from tensorferry._tools.doctor import fast_paths

    # Reported twice: `exercise` may crash the process.
    report("fast_paths", paths=fast_paths.states())
    fast_paths.exercise()
    report("fast_paths", paths=fast_paths.states())


def pinned(report: Report, modules: str, device: str) -> None:
    """Reports the pinned memory after downloads."""
    load(report, modules)
    from tensorferry._tools.doctor import conversion

    ((name, _),) = json.loads(modules)
    report("pinned", pinned_bytes=conversion.pinned_after_downloads(name, device))


def driver(report: Report) -> None:
    """Reports the CUDA driver and its GPUs, without a framework."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if "No such file" in str(error):
            report("absent")
        else:
            report("failed", error=describe(error))
        return
    version, count = ctypes.c_int(), ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        report("version", cuda=f"{version.value // 1000}.{version.value % 1000 // 10}")
    status = library.cuInit(0)
    if status == NO_DEVICE:
        report("gpus", gpus=[])
        return
    if status == 0:
        status = library.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        report("failed", error=f"{_error_name(library, status)} (error {status})")
        return
    report("gpus", gpus=[_gpu(library, index) for index in range(count.value)])


NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...


def _gpu(library: Any, index: int) -> dict[str, Any]:
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    found: dict[str, Any] = dict.fromkeys(("name", "memory_bytes", "capability"))
    library.cuDeviceGet(ctypes.byref(device), index)
    # An old driver may lack one of these functions.
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
    return (text.value or b"unnamed error").decode(errors="replace")


def describe(error: BaseException) -> str:
    """An error as one line."""
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
