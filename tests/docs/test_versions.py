"""The versions that README calls tested are those of the locks and of the recorded GPU runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
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


def table() -> dict[str, list[str]]:
    """The oldest, newest and CUDA versions of each row."""
    text = (ROOT / "README.md").read_text()
    _, _, below = text.partition("| | oldest | newest | with CUDA | |\n")
    rows = [line.split("|") for line in below.partition("\n\n")[0].splitlines()[1:]]
    return {cells[1].strip(): [cell.strip() for cell in cells[2:5]] for cells in rows}


def locked(lock: str, package: str) -> str:
    text = (ROOT / "requirements" / lock).read_text()
    found = re.search(rf"^{re.escape(package)}==(\S+)", text, re.M)
    return found[1] if found else "-"


def test_every_framework_has_a_row() -> None:
    assert table().keys() == {"Python", *PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_versions_are_those_that_are_tested(name: str) -> None:
    package = PACKAGES[name]
    oldest, newest, cuda = table()[name]
    assert oldest == locked("oldest.lock", package)
    assert newest == locked("test.lock", package)
    records = (ROOT / "benches" / "records").glob("*-tests*.json")
    machines = [json.loads(record.read_text())["machine"] for record in records]
    tested = {machine[NAMES_IN_RECORDS.get(package, package)] or "-" for machine in machines}
    assert cuda in tested
