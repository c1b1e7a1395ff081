"""The versions that the documentation calls tested are those of the locks and of recorded runs."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
HEAD = "| | oldest | Python 3.11 | newest | with CUDA | |\n"
# The packages by the names of rows, and by the names in records where those differ.
PACKAGES = {
    "NumPy": "numpy",
    "PyTorch": "torch",
    "JAX": "jax",
    "TensorFlow": "tensorflow-cpu",
    "CuPy": "cupy",
    "Paddle": "paddlepaddle",
    "MLX": "mlx",
}
NAMES_IN_RECORDS = {"tensorflow-cpu": "tensorflow", "paddlepaddle": "paddle"}
LOCKS = {"oldest": "oldest.lock", "Python 3.11": "test.lock", "newest": "newest.lock"}


def columns() -> dict[str, dict[str, str]]:
    """The versions of each column by row."""
    text = (ROOT / "docs" / "get-started" / "install.md").read_text()
    _, _, below = text.partition(HEAD)
    rows = [line.split("|") for line in below.partition("\n\n")[0].splitlines()[1:]]
    names = [cell.strip() for cell in HEAD.split("|")[2:6]]
    return {
        name: {cells[1].strip(): cells[position].strip() for cells in rows}
        for position, name in enumerate(names, start=2)
    }


def locked(lock: str, package: str) -> str:
    text = (ROOT / "requirements" / lock).read_text()
    found = re.search(rf"^{re.escape(package)}==(\S+)", text, re.M)
    return found[1] if found else "-"


@cache
def records() -> list[dict[str, Any]]:
    paths = (ROOT / "benches" / "records").rglob("*-tests*.json")
    return [json.loads(path.read_text()) for path in paths]


def versions(record: dict[str, Any]) -> dict[str, str]:
    """The versions that a run was recorded with, by row."""
    machine = record["machine"]
    found = {name: machine[NAMES_IN_RECORDS.get(key, key)] or "-" for name, key in PACKAGES.items()}
    return {"Python": ".".join(machine["python"].split(".")[:2]), **found}


def has_failed(record: dict[str, Any]) -> bool:
    return any(file.keys() & {"failed", "error"} for file in record["outcomes"].values())


def test_every_framework_has_a_row() -> None:
    assert columns()["oldest"].keys() == {"Python", *PACKAGES}


@pytest.mark.parametrize("column", LOCKS)
@pytest.mark.parametrize("name", PACKAGES)
def test_versions_are_those_of_the_locks(column: str, name: str) -> None:
    assert columns()[column][name] == locked(LOCKS[column], PACKAGES[name])


@pytest.mark.parametrize("column", LOCKS)
def test_a_run_without_failures_is_recorded_with_all_versions(column: str) -> None:
    tested = [versions(record) for record in records() if not has_failed(record)]
    assert columns()[column] in tested


@pytest.mark.parametrize("name", PACKAGES)
def test_each_version_with_cuda_is_recorded(name: str) -> None:
    on_gpus = [record for record in records() if record["machine"]["gpu"] is not None]
    assert columns()["with CUDA"][name] in {versions(record)[name] for record in on_gpus}
