"""`@ferry.agnostic`: one body for every framework, written against the Array API.

The body's first parameter (after `self` or `cls`) is called `xp`; callers do not pass it. It is
`ferry.array_namespace` of the tensors that were passed. Tensors of several frameworks meet in that
of the first one, in the order of the signature, depth first, and results go back to it. They must
be on one device: what is elsewhere is not moved unless `device=` asks for it, because a trip
through the host is nothing to be made in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorferry._native import InvalidArgumentError, NotATensorError, Plan, plan, to
from tensorferry.functions.callables import Body, examine, refuse
from tensorferry.functions.origins import (
    APART,
    Home,
    alike,
    all_on,
    first_home,
    is_plain,
    known_as,
    several_cpus,
)
from tensorferry.functions.via import all_of, beside_traced, sent_home


def decorator(device: Any) -> Callable[[Any], Any]:
    """What `agnostic` does to a function."""

    def decorate(body: Any) -> Any:
        if isinstance(body, (staticmethod, classmethod)):
            return type(body)(decorate(body.__func__))
        known = examine(body, "@ferry.agnostic")
        if known.names[known.skip : known.skip + 1] != ("xp",) or _by_name_only(body):
            refuse(
                f"{known.name} has no parameter xp to take the namespace",
                "write xp as its first parameter, or as the second behind self",
            )
        return _wrapped(known, device)

    return decorate


def _wrapped(body: Body, device: Any) -> Any:
    from functools import wraps

    function, name, skip, _, is_async = body

    def enter(args: Any, keywords: Any) -> tuple[Any, Any, Any]:
        first = APART
        if device is None:
            try:
                first = alike(args[skip:] if skip else args)
                if keywords and first is not APART:
                    first = alike(keywords.values(), first)
            except RecursionError:
                first = APART
        if first is APART or first is None:
            try:
                return apart(args, keywords)
            except RecursionError:  # a container in itself, which a plan refuses
                plan((args[skip:], keywords), "numpy")
                raise
        space = _spaces.get(type(first)) or _namespace(first)
        if skip:
            return (*args[:skip], space, *args[skip:]), keywords, first
        return (space, *args), keywords, first

    def apart(args: Any, keywords: Any) -> tuple[Any, Any, Any]:
        """What is not seen at a glance to be of one framework, in one place."""
        home = first_home(args[skip:])
        if home is None and keywords:
            home = first_home(body.in_order(keywords))
        if home is None or home.sparse:
            space = _strange((*args[skip:], *body.in_order(keywords)), name)
            return (*args[:skip], space, *args[skip:]), keywords, _AS_IT_IS
        if home.traced:
            args, keywords = beside_traced(body, (home.framework, {}), args, keywords)
        else:
            passed = args[skip:] if skip else args
            passed, keywords, home = _met(passed, keywords, home, device, name)
            args = (*args[:skip], *passed) if skip else passed
        like = args[skip] if len(args) > skip else None
        if known_as(like) is None:
            from tensorferry.functions.trees import flatten

            like = flatten((args[skip:], keywords))[0][0]
        space = _spaces.get(type(like)) or _namespace(like)
        return (*args[:skip], space, *args[skip:]), keywords, home

    def leave(result: Any, met: Any) -> Any:
        if type(met) is Home:
            return sent_home(result, met)
        if alike((result,), met) is met:
            return result
        home = first_home((met,))
        return result if home is None else sent_home(result, home)

    async def later(*args: Any, **keywords: Any) -> Any:
        args, keywords, met = enter(args, keywords)
        return leave(await function(*args, **keywords), met)

    def now(*args: Any, **keywords: Any) -> Any:
        args, keywords, met = enter(args, keywords)
        return leave(function(*args, **keywords), met)

    wrapper: Any = wraps(function)(later if is_async else now)
    wrapper.__signature__ = _without_xp(function, skip)
    return wrapper


# For tensors that are not carried: results stay as they are.
_AS_IT_IS = Home("", None, True)

_spaces: dict[type, Any] = {}


def _namespace(x: Any) -> Any:
    """`ferry.array_namespace`, which is not loaded before it is needed."""
    from tensorferry.array_api.namespace import array_namespace

    space = array_namespace(x)
    if known_as(x) is not None:
        _spaces[type(x)] = space
    return space


def _strange(arguments: tuple[Any, ...], name: str) -> Any:
    """The namespace of what `ferry.to` does not carry, if it has one: NumPy's scalars, others'."""
    why = ""
    for x in arguments:
        if not is_plain(x):
            try:
                return _namespace(x)
            except InvalidArgumentError as error:
                why = why or ": " + str(error).partition("\n")[0]
    raise InvalidArgumentError(
        f"{name} was passed no tensor{why}"
        "\nhint: pass at least one that is dense, which says whose xp it gets"
    )


def _met(
    args: Any, keywords: dict[str, Any], home: Home, device: Any, name: str
) -> tuple[Any, Any, Home]:
    """All tensors in one framework, on one device; the very arguments if they are that already."""
    framework = home.framework
    if device is None and all_on(args, home.device) and all_on(keywords.values(), home.device):
        if not keywords:
            return to(args, framework, **_beside(home)), keywords, home
    elif device is None:
        try:
            plans = plan((args, keywords), framework).parts
        except NotATensorError:
            if not all_of(framework, (args, keywords)):
                raise
            # What torch.func transforms has no memory, and its own framework asks for none.
            return args, keywords, _AS_IT_IS
        for told in plans:
            if told.source_device != home.device and not _is_host_memory(told, home):
                refuse(
                    f"{name} was passed a {framework} tensor on {home.device or 'several devices'} "
                    f"and a {told.source} tensor on {told.source_device}",
                    "carry them to one device with ferry.to, or write @ferry.agnostic(device=...)",
                )
        if all(told.action == "itself" for told in plans):
            return args, keywords, home
    wishes = _beside(home) if device is None else {"device": device}
    return *to((args, keywords), framework, **wishes), home


def _beside(home: Home) -> dict[str, Any]:
    """The wishes that bring host memory to the CPU device of the first tensor."""
    return {"device": home.device} if home.framework in several_cpus else {}


def _is_host_memory(told: Plan, home: Home) -> bool:
    """Whether another framework's tensor and the first are both on CPUs, which are the host."""
    hosts = all(device.startswith("cpu") for device in (told.source_device, home.device or ""))
    return hosts and told.source != home.framework


def _by_name_only(function: Any) -> bool:
    """Whether xp stands behind a star, where nobody could pass it first."""
    import inspect

    return inspect.signature(function).parameters["xp"].kind is inspect.Parameter.KEYWORD_ONLY


def _without_xp(function: Any, skip: int) -> Any:
    import inspect

    signature = inspect.signature(function)
    kept = list(signature.parameters.values())
    del kept[skip]
    return signature.replace(parameters=kept)
