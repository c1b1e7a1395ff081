"""What a record says about where and with what it was measured. No host names, no paths."""

import mmap
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from tensorferry._tools import machine
from tensorferry._tools.machine import cores, free_memory, gpu

__all__ = ["back_free_memory", "cores", "description", "free_memory", "gpu", "name"]

ROOT = Path(__file__).parent.parent


def description() -> dict[str, Any]:
    """Machine, versions, date and commit."""
    return {**machine.description(), "commit": _commit()}


def name() -> str:
    """A short name of this kind of machine, fit for a file name."""
    model = re.sub(r"\(\w+\)|\bCPU\b|\bProcessor\b|@.*", " ", machine.cpu())
    words = re.findall(r"[a-z0-9]+", model.lower())
    graphics = re.findall(r"[a-z0-9]+", (gpu() or "").split(",")[0].lower())
    return "-".join([*words, f"{cores()}-cores", *graphics])


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
