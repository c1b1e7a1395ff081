"""Programs with several cases: the first argument names the function that runs.

Cases of one program share their imports and their set-up, and each runs in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

Case = TypeVar("Case", bound=Callable[..., None])

_cases: dict[str, Callable[..., None]] = {}


def case(function: Case) -> Case:
    """Makes a function a case, under its own name."""
    _cases[function.__name__] = function
    return function


def main() -> None:
    """Runs the case that the command line names, with the other arguments."""
    name, *arguments = sys.argv[1:]
    _cases[name](*arguments)
