"""Compares the messages of errors with the golden file of their area; see README.md."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tensorferry as ferry
from tensorferry.framework_register import TENSOR_FRAMEWORKS

GOLDEN = Path(__file__).parent
AREAS = sorted(path.stem.removeprefix("cases_") for path in GOLDEN.glob("cases_*.py"))

sys.path.insert(0, str(GOLDEN))

Case = Callable[[Path], object]


def error_message(case: Case, folder: Path) -> str:
    """The message of a case on one line, without its folder and the frameworks of other tests."""
    folder.mkdir()
    try:
        result = case(folder)
    except ferry.FerryError as error:
        result = error
    assert isinstance(result, ferry.FerryError | str), f"no error but {result!r}"
    message = str(result).replace(str(folder), "FOLDER").replace("\n", " | ")
    others = {framework.name for framework in ferry.frameworks()} - {*TENSOR_FRAMEWORKS}
    return functools.reduce(lambda text, name: text.replace(f", {name}", ""), others, message)


@pytest.mark.parametrize("area", AREAS)
def test_wording(area: str, tmp_path: Path) -> None:
    cases: dict[str, Case] = importlib.import_module(f"cases_{area}").CASES
    lines = [
        f"{name} | {error_message(case, tmp_path / str(number))}"
        for number, (name, case) in enumerate(cases.items())
    ]
    path = GOLDEN / f"{area}.txt"
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()
