"""Errors that test programs expect, without pytest, whose imports some programs must not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Error = TypeVar("Error", bound=BaseException)


def raised(kind: type[Error], call: Callable[[], object]) -> Error:
    """The error that `call` raises, which must be of this class. It keeps no frames alive."""
    try:
        call()
    except kind as error:
        return error.with_traceback(None)
    raise AssertionError(f"no {kind.__name__} was raised")
