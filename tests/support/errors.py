"""Errors that test programs expect, without pytest, whose imports some programs must not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Error = TypeVar("Error", bound=BaseException)


def raised(
    kind: type[Error], call: Callable[..., object], *arguments: object, **options: object
) -> Error:
    """The error that a call raises, which must be of this class. It keeps no frames alive."""
    try:
        call(*arguments, **options)
    except kind as error:
        return error.with_traceback(None)
    raise AssertionError(f"no {kind.__name__} was raised")
