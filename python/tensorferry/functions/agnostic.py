"""`@ferry.agnostic`: one function for every framework, written against the Array API.

The function's first parameter (after `self` or `cls`) is called `xp`; callers do not pass it. It is
`ferry.array_namespace` of the tensors that were passed. Tensors of several frameworks are converted
to the framework of the first one, in the order of the signature, depth first, and results return to
it. All tensors must be on one device: a copy between devices is not made silently, but only if
`device=` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorferry._native import FerryError, InvalidArgumentError, NotATensorError, Plan, plan, to
from tensorferry.functions.callables import FunctionInfo, inspect_function, refuse
from tensorferry.functions.origins import (
    MIXED,
    Origin,
    all_on_device,
    first_if_uniform,
    first_origin,
    flatten_tensors,
    is_non_tensor,
    multi_cpu_frameworks,
    tensor_type_of,
)
from tensorferry.functions.result_errors import refuse_result
from tensorferry.functions.via import all_of_framework, convert_untraced, return_to_origin


def make_decorator(device: Any) -> Callable[[Any], Any]:
    """The decorator that `agnostic` returns."""

    def decorate(function: Any) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(decorate(function.__func__))
        info = inspect_function(function, "@ferry.agnostic")
        if info.names[info.skip : info.skip + 1] != ("xp",) or _is_keyword_only(function):
            refuse(
                f"{info.name} has no parameter xp for the namespace",
                "write xp as its first parameter, or as the second after self",
            )
        return _wrap(info, device)

    return decorate


def _wrap(info: FunctionInfo, device: Any) -> Any:
    from functools import wraps

    function, name, skip, _, is_async = info

    def convert_in(args: Any, keywords: Any) -> tuple[Any, Any, Any]:
        first = MIXED
        if device is None:
            try:
                first = first_if_uniform(args[skip:] if skip else args)
                if keywords and first is not MIXED:
                    first = first_if_uniform(keywords.values(), first)
            except RecursionError:
                first = MIXED
        if first is MIXED or first is None:
            try:
                return convert_mixed(args, keywords)
            except RecursionError:  # a container that holds itself, which a plan refuses
                plan((args[skip:], keywords), "numpy")
                raise
        space = _namespaces.get(type(first)) or _namespace(first)
        if skip:
            return (*args[:skip], space, *args[skip:]), keywords, first
        return (space, *args), keywords, first

    def convert_mixed(args: Any, keywords: Any) -> tuple[Any, Any, Any]:
        """The slow path: tensors that may differ in framework or device."""
        origin = first_origin(args[skip:])
        if origin is None and keywords:
            origin = first_origin(info.order_keywords(keywords))
        if origin is None or origin.is_sparse:
            space = _unconverted_namespace((*args[skip:], *info.order_keywords(keywords)), name)
            return (*args[:skip], space, *args[skip:]), keywords, _UNCHANGED
        if origin.is_traced:
            args, keywords = convert_untraced(info, (origin.framework, {}), args, keywords)
        else:
            passed = args[skip:] if skip else args
            passed, keywords, origin = _convert_to_origin(passed, keywords, origin, device, name)
            args = (*args[:skip], *passed) if skip else passed
        like = args[skip] if len(args) > skip else None
        if tensor_type_of(like) is None:
            like = flatten_tensors((args[skip:], keywords))[0][0]
        space = _namespaces.get(type(like)) or _namespace(like)
        return (*args[:skip], space, *args[skip:]), keywords, origin

    def convert_out(result: Any, first: Any) -> Any:
        """The result at its origin; `first` is an Origin, or the first tensor on the fast path."""
        if type(first) is not Origin and first_if_uniform((result,), first) is first:
            return result
        origin = first if type(first) is Origin else first_origin((first,))
        try:
            return result if origin is None else return_to_origin(result, origin)
        except FerryError as error:
            refuse_result(error, name)

    async def call_async(*args: Any, **keywords: Any) -> Any:
        args, keywords, first = convert_in(args, keywords)
        return convert_out(await function(*args, **keywords), first)

    def call(*args: Any, **keywords: Any) -> Any:
        args, keywords, first = convert_in(args, keywords)
        return convert_out(function(*args, **keywords), first)

    wrapper: Any = wraps(function)(call_async if is_async else call)
    wrapper.__signature__ = _signature_without_xp(function, skip)
    return wrapper


# The origin for tensors that are not converted: results stay unchanged.
_UNCHANGED = Origin("", None, True)

_namespaces: dict[type, Any] = {}


def _namespace(x: Any) -> Any:
    from tensorferry.array_api.namespace import array_namespace  # deferred until it is needed

    space = array_namespace(x)
    if tensor_type_of(x) is not None:
        _namespaces[type(x)] = space
    return space


def _unconverted_namespace(arguments: tuple[Any, ...], name: str) -> Any:
    """The namespace of arguments that `ferry.to` does not convert, such as NumPy scalars."""
    refusal = None
    for x in arguments:
        if not is_non_tensor(x):
            try:
                return _namespace(x)
            except InvalidArgumentError as error:
                refusal = refusal or error
    reason, hint = "", "pass at least one dense tensor, which determines xp"
    if refusal is not None:
        reason, hint = ": " + str(refusal).partition("\n")[0], refusal.hint or hint
    raise InvalidArgumentError(f"{name} was called without a tensor{reason}\nhint: {hint}")


def _convert_to_origin(
    args: Any, keywords: dict[str, Any], origin: Origin, device: Any, name: str
) -> tuple[Any, Any, Origin]:
    """All tensors in one framework, on one device; the same arguments if they already are."""
    framework = origin.framework
    if (
        device is None
        and all_on_device(args, origin.device)
        and all_on_device(keywords.values(), origin.device)
    ):
        if not keywords:
            return to(args, framework, **_device_options(origin)), keywords, origin
    elif device is None:
        try:
            plans = plan((args, keywords), framework).parts
        except NotATensorError:
            if not all_of_framework(framework, (args, keywords)):
                raise
            # Tensors that torch.func transforms have no memory, and stay in their framework.
            return args, keywords, _UNCHANGED
        for part in plans:
            if part.source_device != origin.device and not _is_host_memory(part, origin):
                refuse(
                    f"{name} was called with a {framework} tensor on "
                    f"{origin.device or 'several devices'} "
                    f"and a {part.source} tensor on {part.source_device}",
                    "move them to one device with ferry.to, or write @ferry.agnostic(device=...)",
                )
    options = _device_options(origin) if device is None else {"device": device}
    return *to((args, keywords), framework, **options), origin


def _device_options(origin: Origin) -> dict[str, Any]:
    """The options that bring host memory to the CPU device of the first tensor."""
    return {"device": origin.device} if origin.framework in multi_cpu_frameworks else {}


def _is_host_memory(part: Plan, origin: Origin) -> bool:
    """Whether a tensor of another framework and the first tensor are both on CPU devices."""
    hosts = all(device.startswith("cpu") for device in (part.source_device, origin.device or ""))
    return hosts and part.source != origin.framework


def _is_keyword_only(function: Any) -> bool:
    """Whether xp is a keyword-only parameter, which cannot be passed first."""
    import inspect

    return inspect.signature(function).parameters["xp"].kind is inspect.Parameter.KEYWORD_ONLY


def _signature_without_xp(function: Any, skip: int) -> Any:
    import inspect

    signature = inspect.signature(function)
    kept = list(signature.parameters.values())
    del kept[skip]
    return signature.replace(parameters=kept)
