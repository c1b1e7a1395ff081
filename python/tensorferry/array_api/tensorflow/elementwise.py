"""Constructors of the elementwise functions, which are defined in one line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tensorferry.array_api.tensorflow.dtypes import Kind
from tensorferry.array_api.tensorflow.tensors import Scalar, Tensor, tensor, together

Unary: TypeAlias = Callable[[Tensor], Tensor]
Binary: TypeAlias = Callable[[Tensor | Scalar, Tensor | Scalar], Tensor]

F = TypeVar("F", bound=Callable[..., Any])


def unary(name: str, kind: Kind, body: Callable[[Any], Any], document: str) -> Unary:
    """A function of one tensor of some kind."""

    def function(x: Tensor, /) -> Tensor:
        return body(tensor(name, x, kind))

    return _named(function, name, document)


def binary(name: str, kind: Kind, body: Callable[[Any, Any], Any], document: str) -> Binary:
    """A function of two tensors of some kind, or one and a Python scalar, in their common type."""

    def function(x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
        return body(*together(name, kind, x1, x2))

    return _named(function, name, document)


def _named(function: F, name: str, document: str) -> F:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = document
    return function
