"""`@ferry.agnostic`: one body for every framework, written against the Array API.

The body's first parameter (after `self` or `cls`) is called `xp`; callers do not pass it. It is
`ferry.namespace` of the tensors that were passed. Tensors of several frameworks meet in that of
the first one, in the order of the signature, depth first, and results go back to it. They must be
on one device: what is elsewhere is not moved unless `device=` asks for it, because a trip through
the host is nothing to be made in silence.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tensorferry._native import plan, to
from tensorferry.calls.callables import Body, examine, refuse
from tensorferry.calls.homes import Home, all_on_host, first_home, known_as
from tensorferry.calls.wrapping import beside_traced, sent_home


def decorator(device: Any) -> Callable[[Any], Any]:
    """What `agnostic` does to a function."""

    def decorate(body: Any) -> Any:
        if isinstance(body, (staticmethod, classmethod)):
            return type(body)(decorate(body.__func__))
        known = examine(body, "@ferry.agnostic")
        if known.names[known.skip : known.skip + 1] != ("xp",):
            refuse(
                f"{known.name} has no parameter xp to take the namespace",
                "write xp as its first parameter, or as the second behind self",
            )
        return _wrapped(known, device)

    return decorate


def _wrapped(body: Body, device: Any) -> Any:
    from functools import wraps

    from tensorferry.calls.leaves import flatten

    function, name, skip, _, is_async = body

    def gathered(args: Any, keywords: Any, home: Home) -> tuple[Any, Any]:
        """All tensors in one place, by the quickest way."""
        passed = args[skip:] if skip else args
        same: bool | None = None
        if device is None and home.device == "cpu":
            same = all_on_host(passed, home.framework)
            if same is not None and keywords:
                others = all_on_host(keywords.values(), home.framework)
                same = None if others is None else same and others
        if same:
            return args, keywords
        if same is None:
            passed, keywords = _met((passed, keywords), home, device, name)
        elif keywords:
            passed, keywords = to((passed, keywords), home.framework)
        else:
            passed = to(passed, home.framework)
        return (*args[:skip], *passed) if skip else passed, keywords

    def enter(args: Any, keywords: Any) -> tuple[Any, Any, Home]:
        home = first_home(args[skip:] if skip else args)
        if home is None and keywords:
            home = first_home(body.in_order(keywords))
        if home is None:
            refuse(f"{name} was passed no tensor", "pass at least one, which says whose xp it gets")
        if home.traced:
            args, keywords = beside_traced(body, (home.framework, {}), args, keywords)
        else:
            args, keywords = gathered(args, keywords, home)
        xp = _namespaces.get(home.framework)
        if xp is None:
            like = next((x for x in args[skip:] if known_as(x) is not None), None)
            if like is None:
                like = flatten((args[skip:], keywords))[0][0]
            xp = _namespace(like, home.framework)
        if skip:
            return (*args[:skip], xp, *args[skip:]), keywords, home
        return (xp, *args), keywords, home

    async def later(*args: Any, **keywords: Any) -> Any:
        args, keywords, home = enter(args, keywords)
        return sent_home(await function(*args, **keywords), home)

    def now(*args: Any, **keywords: Any) -> Any:
        args, keywords, home = enter(args, keywords)
        return sent_home(function(*args, **keywords), home)

    wrapper: Any = wraps(function)(later if is_async else now)
    wrapper.__signature__ = _without_xp(function, skip)
    return wrapper


# Those of frameworks whose tensors all have the same one.
_namespaces: dict[str, Any] = {}


def _namespace(x: Any, framework: str) -> Any:
    """`ferry.namespace`, which is not loaded before it is needed."""
    module: Any = importlib.import_module("tensorferry.namespace")
    found = module.namespace(x)
    if framework in module.SAME_FOR_ALL:
        _namespaces[framework] = found
    return found


def _met(arguments: tuple[Any, Any], home: Home, device: Any, name: str) -> Any:
    """All tensors in one framework, on one device; the very arguments if they are that already."""
    if device is not None:
        return to(arguments, home.framework, device=device)
    plans = [told for _, told in plan(arguments, home.framework).plans]
    for told in plans:
        if told.source_device != home.device:
            refuse(
                f"{name} was passed a {home.framework} tensor on {home.device} "
                f"and a {told.source} tensor on {told.source_device}",
                "carry them to one device with ferry.to, or write @ferry.agnostic(device=...)",
            )
    if all(told.action == "itself" for told in plans):
        return arguments
    return to(arguments, home.framework)


def _without_xp(function: Any, skip: int) -> Any:
    import inspect

    signature = inspect.signature(function)
    kept = list(signature.parameters.values())
    del kept[skip]
    return signature.replace(parameters=kept)
