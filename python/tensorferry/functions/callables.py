"""Checks of the callables that the decorators accept.

A decorated function keeps its name, docs, signature and `__wrapped__`, and its kind: a plain
function, an async function, a method, a class method or a static method. A callable that would not
behave as its author expects, such as a generator, is refused when it is decorated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from tensorferry._native import InvalidArgumentError


class FunctionInfo(NamedTuple):
    """What is known about a function before it is called."""

    function: Callable[..., Any]
    name: str
    #: The number of leading arguments that are not converted: `self` or `cls`.
    skip: int
    #: The names of its parameters, in order.
    names: tuple[str, ...]
    is_async: bool

    def order_keywords(self, keywords: dict[str, Any]) -> Iterable[Any]:
        """Keyword arguments in the order of the signature, then those that it does not name."""
        if len(keywords) < 2:
            return keywords.values()
        named = [keywords[name] for name in self.names if name in keywords]
        return named + [x for name, x in keywords.items() if name not in self.names]


def inspect_function(function: Any, decorator: str) -> FunctionInfo:
    """Inspects a callable that is being decorated, and refuses what cannot be decorated."""
    import inspect  # deferred: keeps `import tensorferry` fast

    name = getattr(function, "__qualname__", type(function).__qualname__)
    if isinstance(function, property):
        refuse(f"{decorator} does not accept a property", f"write @property above {decorator}")
    if inspect.isclass(function):
        refuse(
            f"{decorator} does not accept a class, and {name} is a class", "decorate its methods"
        )
    if not callable(function):
        refuse(
            f"{decorator} takes a function, not an object of type {name}",
            f"write {decorator} above a def",
        )
    entry = None if inspect.isroutine(function) else type(function).__call__
    for candidate in (function, entry):
        if inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate):
            refuse(
                f"{decorator} does not accept a generator, and {name} is a generator function",
                "decorate the function that makes each item, or call ferry.to before each yield",
            )
    names: tuple[str, ...] = ()
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        pass  # Functions of C modules may have no signature.
    else:
        unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names = tuple(n for n, parameter in parameters.items() if parameter.kind not in unnamed)
    skip = 1 if inspect.isfunction(function) and names[:1] in (("self",), ("cls",)) else 0
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(entry)
    return FunctionInfo(function, name, skip, names, is_async)


def refuse(fact: str, hint: str) -> NoReturn:
    """Raises an InvalidArgumentError with a hint."""
    raise InvalidArgumentError(f"{fact}\nhint: {hint}")
