"""Follows the hints of errors by code."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy

import tensorferry as ferry


def follow(error: ferry.FerryError, way: int = 0, **names: Any) -> Any:
    """The value of the expression that a hint says to pass, to use or to call."""
    _, text = re.split(r"\b(?:pass|use|call) (?:out=)?|: ", error.hint, maxsplit=1)
    text = text.split(", or ")[way]
    for end in range(len(text), 0, -1):
        try:
            expression = ast.parse(text[:end].strip(), mode="eval")
        except SyntaxError:
            continue
        # Words after a comma parse as the next item of a tuple.
        if not isinstance(expression.body, ast.Tuple):
            return eval(compile(expression, text, "eval"), {"numpy": numpy, "ferry": ferry} | names)
    raise AssertionError(f"the hint has no expression: {error.hint}")
