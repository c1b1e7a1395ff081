"""Checks of errors: one line of fact, one `hint:` line, our class and the builtin class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tensorferry as ferry

TARGETS = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")

# Text of tracebacks, panics and internals, which a message must not contain.
INTERNALS = (
    "Traceback",
    "panicked",
    "Exception raised from",
    "frame #",
    "c10::",
    "std::",
    "C++",
    ".cpp:",
    ".cc:",
    ".rs:",
    "site-packages",
    "object at 0x",
    "PyErr",
    "<class ",
)


def refused(kind: type[Exception], builtin: type[Exception], call: Callable[[], Any]) -> Exception:
    """Runs `call`, checks that it raises an error of both classes with a hint, and returns it."""
    with pytest.raises(ferry.FerryError) as caught:
        call()
    error = caught.value
    check_words(error)
    assert isinstance(error, kind), f"{type(error).__name__}, not {kind.__name__}: {error}"
    assert isinstance(error, builtin), f"{type(error).__name__} is not a {builtin.__name__}"
    return error


def refused_everywhere(
    kind: type[Exception],
    builtin: type[Exception],
    source: Any,
    origin: str | None = None,
    in_plans: bool = True,
) -> Exception:
    """The same for every target, for the plan, and for the source inside a tree.

    `origin` is the framework of the source, if it accepts the source unchanged. Without `in_plans`,
    only a conversion finds out.
    """
    for target in TARGETS:
        if target == origin:
            assert ferry.to(source, origin) is source
            continue
        error = refused(kind, builtin, lambda target=target: ferry.to(source, target))
    if in_plans:
        refused(kind, builtin, lambda: ferry.plan(source, "numpy"))
    inside = refused(kind, builtin, lambda: ferry.to({"k": [0, source]}, "numpy"))
    assert str(inside).startswith("at ['k'][1]: "), str(inside)
    return error


def fact_and_hint(error: BaseException) -> tuple[str, str]:
    """The two lines of an error's message, of which the second is a hint."""
    assert isinstance(error, ferry.FerryError), repr(error)
    fact, _, hint = str(error).partition("\nhint: ")
    assert fact
    assert "\n" not in fact, fact
    assert hint == error.hint
    assert hint
    return fact, hint


def check_words(error: ferry.FerryError) -> None:
    """Checks that the message is two short lines without internals."""
    text = str(error)
    lines = text.split("\n")
    assert len(lines) == 2, f"a fact and a hint are two lines: {text!r}"
    assert lines[1].startswith("hint: "), text
    assert len(lines[1]) > len("hint: "), text
    assert error.hint == lines[1].removeprefix("hint: "), text
    assert 5 < len(lines[0]) < 300, text
    for word in INTERNALS:
        assert word not in text, text
