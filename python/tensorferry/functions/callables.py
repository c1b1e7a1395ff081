"""What the decorators have in common: which callables they take, and how they look afterwards.

A wrapped function keeps its name, docs, signature and `__wrapped__`, and stays what it was: a plain
function, an async one, a method, a class method or a static one. What would not do what people
expect is refused when it is decorated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from tensorferry._native import InvalidArgumentError


class Body(NamedTuple):
    """What is known about a function before it is called."""

    function: Callable[..., Any]
    name: str
    #: How many arguments come before those that are carried: `self` or `cls`.
    skip: int
    #: The names of its parameters, in order.
    names: tuple[str, ...]
    is_async: bool

    def in_order(self, keywords: dict[str, Any]) -> Iterable[Any]:
        """Keyword arguments in the order of the signature, and then those that it does not name."""
        if len(keywords) < 2:
            return keywords.values()
        named = [keywords[name] for name in self.names if name in keywords]
        return named + [x for name, x in keywords.items() if name not in self.names]


def examine(body: Any, decorator: str) -> Body:
    """Looks at what is to be decorated, and refuses what cannot be."""
    import inspect  # not above: the import is to be quick

    name = getattr(body, "__qualname__", type(body).__qualname__)
    if isinstance(body, property):
        refuse(f"{decorator} takes no property", f"write @property above {decorator}")
    if inspect.isclass(body):
        refuse(f"{decorator} takes no class, and {name} is one", "decorate its methods")
    if not callable(body):
        refuse(f"{decorator} takes a function, not a {name}", f"write {decorator} above a def")
    entry = None if inspect.isroutine(body) else type(body).__call__
    for judged in (body, entry):
        if inspect.isgeneratorfunction(judged) or inspect.isasyncgenfunction(judged):
            refuse(
                f"{decorator} takes no generator, and {name} is one",
                "decorate the function that makes each item, or call ferry.to before each yield",
            )
    names: tuple[str, ...] = ()
    try:
        parameters = inspect.signature(body).parameters
    except (TypeError, ValueError):
        pass  # Functions of C modules may have none.
    else:
        unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names = tuple(n for n, parameter in parameters.items() if parameter.kind not in unnamed)
    skip = 1 if inspect.isfunction(body) and names[:1] in (("self",), ("cls",)) else 0
    is_async = inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(entry)
    return Body(body, name, skip, names, is_async)


def refuse(fact: str, hint: str) -> NoReturn:
    """Raises what is wrong, and what to do."""
    raise InvalidArgumentError(f"{fact}\nhint: {hint}")
