"""What a record says about where and with what it was measured. No host names, no paths."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tensorferry._tools import machine

ROOT = Path(__file__).parent.parent


def description() -> dict[str, Any]:
    """Machine, versions, date and commit."""
    return {**machine.description(), "commit": _commit()}


def name() -> str:
    """A short name of this kind of machine, fit for a file name."""
    model = re.sub(r"\(\w+\)|\bCPU\b|\bProcessor\b|@.*", " ", machine.cpu())
    words = re.findall(r"[a-z0-9]+", model.lower())
    graphics = re.findall(r"[a-z0-9]+", (machine.gpu() or "").split(",")[0].lower())
    return "-".join([*words, f"{machine.cores()}-cores", *graphics])


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
