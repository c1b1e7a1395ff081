"""What a record says about where and with what it was measured. No host names, no paths."""

import contextlib
import datetime
import importlib.metadata
import mmap
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
# The names under which each one may be installed.
PACKAGES = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x"),
    "jax": ("jax",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "tensorferry": ("tensorferry",),
}


def facts() -> dict[str, Any]:
    """Machine, versions, commit and date."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": cores(),
        "gpu": gpu(),
        "memory GiB": round(_memory("MemTotal") / 2**30, 1),
        "kernel": platform.release().split("-")[0],
        "huge pages": _huge_pages(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{package: _version(*names) for package, names in PACKAGES.items()},
        "commit": _commit(),
    }


def gpu() -> str | None:
    """The GPU and its driver, as the driver's own tool has it."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        found = subprocess.run(
            query, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        return found[0].replace(", ", ", driver ") if found else None
    return None


def name() -> str:
    """A short name of this kind of machine, fit for a file name."""
    model = re.sub(r"\(\w+\)|\bCPU\b|\bProcessor\b|@.*", " ", _cpu())
    words = re.findall(r"[a-z0-9]+", model.lower())
    graphics = re.findall(r"[a-z0-9]+", (gpu() or "").split(",")[0].lower())
    return "-".join([*words, f"{cores()}-cores", *graphics])


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def back_free_memory(size: int) -> None:
    """Touches so many bytes of free memory once, and gives them back.

    A virtual machine has memory that its host has not provided yet, and who touches it first pays
    several times the cost of a page fault. That is nobody's merit, so nobody is measured on it.
    """
    memory = mmap.mmap(-1, max(size, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    view = np.frombuffer(memory, np.uint8)
    view.fill(1)
    del view
    memory.close()


def free_memory() -> int:
    """The bytes that can be had without swapping."""
    return _memory("MemAvailable")


def _memory(key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _huge_pages() -> str:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    found = re.search(r"\[(\w+)\]", setting.read_text()) if setting.exists() else None
    return found[1] if found else "unknown"


def _version(*names: str) -> str | None:
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def _commit() -> str:
    """The commit, and whether the tree differs from it; records do not change what is measured.

    A copy of the tree without its history is told by TENSORFERRY_COMMIT.
    """
    if told := os.environ.get("TENSORFERRY_COMMIT"):
        return told
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", ".", ":!benches/records")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} (dirty)" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
