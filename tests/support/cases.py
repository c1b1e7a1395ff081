"""Programs with several cases, which share their imports and their set-up.

`main` runs the case that the first argument names, so that each case has a process of its own.
`run_all` runs all cases of a module in one process, where the set-up takes longer than the cases.
"""

from __future__ import annotations

import ast
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

Case = TypeVar("Case", bound=Callable[..., None])

#: The prefix of the functions that `run_all` runs.
PREFIX = "case_"

_cases: dict[str, Callable[..., None]] = {}


def case(function: Case) -> Case:
    """Makes a function a case, under its own name."""
    _cases[function.__name__] = function
    return function


def main() -> None:
    """Runs the case that the command line names, with the other arguments."""
    name, *arguments = sys.argv[1:]
    _cases[name](*arguments)


def names_of_cases(path: Path) -> list[str]:
    """The functions that `run_all` runs, without importing their module."""
    return [
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(PREFIX)
    ]


def run_all(module: ModuleType) -> None:
    """Runs every case of a module, and prints the outcome of each as JSON."""
    outcomes = {}
    for name, function in list(vars(module).items()):
        if name.startswith(PREFIX):
            try:
                function()
                outcomes[name] = "passed"
            except BaseException:  # `pytest.fail` raises one.
                outcomes[name] = traceback.format_exc()
    print(json.dumps(outcomes), flush=True)
