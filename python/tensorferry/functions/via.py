"""`@ferry.via("torch")`: the body sees one framework, callers pass and get back their own.

Tensors are carried to the framework on the way in and home on the way out, by `ferry.to`, as one
tree: keyword arguments, containers and all that `ferry.to` knows are included, and what is no
tensor passes through. Home is the framework and the device of the first tensor that was passed, in
the order of the signature, depth first. Memory is shared where it can be, so a body that writes in
place may write into the caller's tensor; `copy=True` prevents that.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tensorferry._native import NotATensorError, _to_any, canonical, to
from tensorferry.framework_register import is_sparse_only
from tensorferry.functions.callables import Body, examine, refuse
from tensorferry.functions.origins import Home, first_home, known_as, several_cpus

# A framework's name and the wishes for `to`.
Place = tuple[str, dict[str, Any]]

# What `to` can be asked for, for a result.
WISHES = ("device", "dtype", "copy", "writable", "stream")


def decorator(framework: Any, wished: dict[str, Any], returns: Any, grad: bool) -> Any:
    """What `via` gives; what cannot be is refused here, or when a function is decorated."""
    name = canonical(framework)
    wishes = _wishes(**wished)
    fixed, extra = _returns(returns)
    title = f'@ferry.via("{name}")'
    if grad:
        from tensorferry.functions.gradients import check

        check(name, fixed is None and not extra)

    def decorate(body: Any) -> Any:
        if isinstance(body, (staticmethod, classmethod)):
            return type(body)(decorate(body.__func__))
        known = examine(body, title)
        if grad:
            from tensorferry.functions.gradients import bordered

            return _without_dynamo(bordered(known, name, wishes))
        made = _wrapped(known, (name, wishes), fixed, extra)
        return made if known.is_async else _without_dynamo(made)

    return decorate


def _without_dynamo(function: Any) -> Any:
    """A function that `torch.compile` does not trace into.

    Dynamo would trace the framework of the body, and exceeds the recursion limit in JAX. It breaks
    the graph at a function that is disabled. `torch.compiler.disable` imports Dynamo, which takes a
    second, so it is called where Dynamo is there already.
    """
    from functools import wraps

    @wraps(function)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        # Another thread may be importing PyTorch, which has no compiler yet.
        compiler: Any = getattr(sys.modules.get("torch"), "compiler", None)
        if compiler is not None and compiler.is_compiling():
            return compiler.disable(function)(*args, **keywords)
        return function(*args, **keywords)

    return wrapper


def _wishes(**wishes: Any) -> dict[str, Any]:
    return {name: wish for name, wish in wishes.items() if wish is not None}


def _returns(returns: Any) -> tuple[str | None, dict[str, Any]]:
    """Where results go: a framework (None is home, "keep" is nowhere), and wishes."""
    if returns is None:
        return "keep", {}
    extra: dict[str, Any] = {}
    if isinstance(returns, dict):
        extra = dict(returns)
        returns = extra.pop("framework", "same")
        unknown = [name for name in extra if name not in WISHES]
        if unknown:
            refuse(
                f"returns= has {unknown[0]!r}, which is no wish",
                f"write framework or one of {', '.join(WISHES)}",
            )
    if isinstance(returns, str) and returns in ("same", "keep"):
        if returns == "keep" and extra:
            refuse('returns= says "keep" and has wishes', 'write "same" or a name as framework')
        return None if returns == "same" else "keep", _wishes(**extra)
    if not isinstance(returns, (str, ModuleType)):
        refuse(
            f"returns={returns!r} says nothing about results",
            'write "same", "keep", a framework\'s name or a dict with "framework" and wishes',
        )
    return canonical(returns), _wishes(**extra)


def carried(result: Any, framework: str, wishes: dict[str, Any]) -> Any:
    """A result, carried whether it is a tensor, a tree or neither."""
    if known_as(result) is not None:
        return to(result, framework, **wishes)
    return None if result is None else _to_any((result,), framework, **wishes)[0]


def sent_home(result: Any, home: Home) -> Any:
    """A result, carried to where the first tensor came from."""
    framework, device, traced, _ = home
    if traced:
        return result
    if is_sparse_only(framework):
        return _sent_apart(result, framework, {})
    known = known_as(result)
    if known is not None:
        there = known.homes.get(known.place(result))
        if there is not None and there.device == device:
            if known.framework == framework:
                return result
            if framework not in several_cpus:
                return to(result, framework)
    return carried(result, framework, {} if framework == "numpy" else {"device": device})


def _sent_apart(result: Any, framework: str, wishes: dict[str, Any]) -> Any:
    from tensorferry.functions.sparse_origins import carried_apart

    return carried_apart(result, framework, wishes)


def _wrapped(body: Body, inside: Place, fixed: str | None, extra: dict[str, Any]) -> Any:
    """The function that callers see."""
    from functools import wraps

    function, _, skip, _, is_async = body
    name, wishes = inside

    def enter(args: Any, keywords: Any) -> tuple[Any, Any, Home | None]:
        try:
            home = first_home(args[skip:] if skip else args)
            if home is None and keywords:
                home = first_home(body.in_order(keywords))
        except RecursionError:  # a container in itself: the trip says it better
            home = None
        if home is not None and home.traced and home.framework == name:
            return *beside_traced(body, inside, args, keywords), home
        try:
            return *carried_in(args, keywords), home
        except NotATensorError:
            if wishes or home is None or not all_of(name, (args[skip:], keywords)):
                raise
            # What torch.func transforms has no memory, and its own framework asks for none.
            return args, keywords, Home(name, None, True)

    def carried_in(args: Any, keywords: Any) -> tuple[Any, Any]:
        if keywords:
            there = _to_any((args[skip:], keywords), name, **wishes)
            return (*args[:skip], *there[0]), there[1]
        if skip:
            return (*args[:skip], *_to_any(args[skip:], name, **wishes)), keywords
        return _to_any(args, name, **wishes) if wishes else _to_any(args, name), keywords

    def leave(result: Any, home: Home | None) -> Any:
        if fixed is not None:
            return result if fixed == "keep" else carried(result, fixed, extra)
        if home is None:
            return result
        if extra and is_sparse_only(home.framework):
            return _sent_apart(result, home.framework, extra)
        if extra:
            place = {} if home.framework == "numpy" else {"device": home.device}
            return carried(result, home.framework, place | extra)
        return sent_home(result, home)

    if is_async:

        @wraps(function)
        async def wrapper(*args: Any, **keywords: Any) -> Any:
            args, keywords, home = enter(args, keywords)
            return leave(await function(*args, **keywords), home)
    else:

        @wraps(function)
        def wrapper(*args: Any, **keywords: Any) -> Any:
            args, keywords, home = enter(args, keywords)
            return leave(function(*args, **keywords), home)

    return wrapper


def all_of(framework: str, arguments: Any) -> bool:
    """Whether every tensor is of one framework."""
    from tensorferry.functions.origins import framework_of
    from tensorferry.functions.trees import flatten

    return all(framework_of(x) == framework for x in flatten(arguments)[0])


def beside_traced(body: Body, inside: Place, args: Any, keywords: Any) -> tuple[Any, Any]:
    """Arguments of which some are only traced: these stay, the others are carried."""
    from tensorferry.functions.origins import is_traced
    from tensorferry.functions.trees import flatten

    leaves, rebuild = flatten((args[body.skip :], keywords))
    name, wishes = inside
    there = [x if is_traced(x) else to(x, name, **wishes) for x in leaves]
    rest, keywords = rebuild(there)
    return (*args[: body.skip], *rest), keywords
