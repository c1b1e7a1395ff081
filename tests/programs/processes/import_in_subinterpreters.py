"""Imports tensorferry in subinterpreters, which is refused, and in the main interpreter.

The argument says whether the main interpreter comes first or last.
"""

from __future__ import annotations

import array
import importlib
import sys
from typing import Any

from support.subprocesses import read_program


def _interpreters() -> Any:
    """Python's module for subinterpreters, whose name depends on the version."""
    try:
        return importlib.import_module("_xxsubinterpreters")
    except ImportError:
        return importlib.import_module("_interpreters")


interpreters = _interpreters()
if sys.argv[1] == "main first":
    import tensorferry  # noqa: F401
code = read_program("processes/import_refused.py")
for _ in range(2):
    inner = interpreters.create()
    error = interpreters.run_string(inner, code)
    assert error is None, error
    interpreters.destroy(inner)

import tensorferry as ferry  # noqa: E402

assert ferry.to(array.array("f", [1, 2]), "numpy").tolist() == [1, 2]
print("out")
