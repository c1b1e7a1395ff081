"""Facts about the machine for reports: processor, memory and versions, without names and paths."""

import contextlib
import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from tensorferry.framework_register import FRAMEWORKS, TENSOR_FRAMEWORKS


def description() -> dict[str, Any]:
    """The machine, versions and date."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "cores": cores(),
        "gpu": gpu(),
        "memory GiB": round(_memory("MemTotal") / 2**30, 1),
        "kernel": platform.release().split("-")[0],
        "huge pages": huge_pages(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{framework: version(framework) for framework in TENSOR_FRAMEWORKS},
        "tensorferry": version("tensorferry"),
    }


def gpu() -> str | None:
    """The GPU and its driver, by nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        done = subprocess.run(query, capture_output=True, text=True, check=True)
        found = done.stdout.splitlines()
        return found[0].replace(", ", ", driver ") if found else None
    return None


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def free_memory() -> int:
    """The bytes of memory that are available without swapping."""
    return _memory("MemAvailable")


def cpu() -> str:
    """The name of the processor."""
    found = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.machine()


def huge_pages() -> str:
    """The kernel's setting for transparent huge pages: always, madvise or never."""
    found = re.search(r"\[(\w+)\]", _text("/sys/kernel/mm/transparent_hugepage/enabled"))
    return found[1] if found else "unknown"


def version(name: str) -> str | None:
    """The installed version of a framework or distribution, without importing it."""
    for distribution in FRAMEWORKS[name].distributions if name in FRAMEWORKS else (name,):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(distribution)
    return None


def _memory(key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""
