"""Tests that need a CUDA GPU. Without one they fail: `make test-gpu` is for machines with one."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import hang_guard

# Frameworks that take the whole GPU when they start would leave nothing for the others.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

# The order is the one in which the frameworks live together.
with contextlib.suppress(ImportError):
    import paddle  # noqa: F401
import torch

with contextlib.suppress(ImportError):
    import triton  # noqa: F401


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_guard, "hang_guard")
    if not torch.cuda.is_available():
        raise pytest.UsageError("there is no CUDA GPU here: `make test` runs what needs none")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="the folder that gets a record of the run")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Writes how many tests of each file and cells of the matrix ended how, with machine, versions
    and commit."""
    folder = config.getoption("record")
    if folder is None:
        return
    sys.path.insert(0, str(Path(__file__).parent.parent.parent / "benches"))
    import machine
    from matrix.check import TALLY

    facts = machine.description()
    files: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, []):
            files.setdefault(Path(report.nodeid.split("::")[0]).name, Counter())[outcome] += 1
    folder.mkdir(parents=True, exist_ok=True)
    # A run of some files does not replace one of all.
    chosen = [Path(name).stem.removeprefix("test_") for name in config.args if name.endswith(".py")]
    stem = "-".join((facts["date"][:10], machine.name(), "tests", *sorted(chosen)))
    path = folder / f"{stem}.json"
    everything = {
        "machine": facts,
        "outcomes": {name: dict(files[name]) for name in sorted(files)},
        "cells of the matrix": dict(sorted(TALLY.items())),
    }
    path.write_text(json.dumps(everything, indent=1) + "\n")
