"""`@ferry.via("torch")`: the function sees one framework, callers pass and receive their own.

`ferry.to` converts the arguments to the framework as one tree, and the result back to the origin:
the framework and device of the first tensor, in the order of the signature, depth first. Keyword
arguments and containers are included; objects that are not tensors pass unchanged. NumPy scalars
that a function of NumPy returns go back as 0-d tensors. Memory is shared where possible, so a
function that writes in place may write to the caller's tensor; `copy=True` prevents that.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tensorferry._native import FerryError, NotATensorError, _to_any, _to_results, canonical, to
from tensorferry.framework_register import is_sparse_only
from tensorferry.functions.callables import FunctionInfo, inspect_function, refuse
from tensorferry.functions.origins import (
    Origin,
    first_origin,
    flatten_tensors,
    framework_of,
    is_traced,
    multi_cpu_frameworks,
    tensor_type_of,
)
from tensorferry.functions.result_errors import refuse_result
from tensorferry.sparse.frameworks import sparse_framework_of

# A framework's name and options of `to`.
Target = tuple[str, dict[str, Any]]

# The options of `to` that `returns=` accepts.
RESULT_OPTIONS = ("device", "dtype", "copy", "writable", "stream")


def make_decorator(framework: Any, options: dict[str, Any], returns: Any, grad: bool) -> Any:
    """The decorator that `via` returns; invalid arguments are refused here."""
    name = canonical(framework)
    options = _drop_defaults(**options)
    fixed, extra = _parse_returns(returns)
    title = f'@ferry.via("{name}")'
    if grad:
        from tensorferry.functions.gradients import check_framework

        check_framework(name, fixed is None and not extra)

    def decorate(function: Any) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(decorate(function.__func__))
        info = inspect_function(function, title)
        if grad:
            from tensorferry.functions.gradients import differentiable

            return _without_dynamo(differentiable(info, name, options))
        wrapper = _wrap(info, (name, options), fixed, extra)
        return wrapper if info.is_async else _without_dynamo(wrapper)

    return decorate


def _without_dynamo(function: Any) -> Any:
    """A function that `torch.compile` does not trace into.

    Dynamo would trace the framework of the function, and exceeds the recursion limit in JAX. It
    breaks the graph at a function that is disabled. `torch.compiler.disable` imports Dynamo, which
    takes a second, so it is called only while Dynamo is compiling.
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


def _drop_defaults(**options: Any) -> dict[str, Any]:
    return {name: option for name, option in options.items() if option is not None}


def _parse_returns(returns: Any) -> tuple[str | None, dict[str, Any]]:
    """The framework of results (None is the origin, "keep" converts nothing), and options."""
    if returns is None:
        return "keep", {}
    extra: dict[str, Any] = {}
    if isinstance(returns, dict):
        extra = dict(returns)
        returns = extra.pop("framework", "same")
        unknown = [name for name in extra if name not in RESULT_OPTIONS]
        if unknown:
            refuse(
                f"returns= has the unknown key {unknown[0]!r}",
                f"write framework or one of {', '.join(RESULT_OPTIONS)}",
            )
    if isinstance(returns, str) and returns in ("same", "keep"):
        if returns == "keep" and extra:
            refuse(
                f'returns= has framework "keep", which does not accept {next(iter(extra))!r}',
                'write "same" or a name as framework',
            )
        return None if returns == "same" else "keep", _drop_defaults(**extra)
    if not isinstance(returns, (str, ModuleType)):
        refuse(
            f"returns={returns!r} does not name a framework",
            'write "same", "keep", a framework\'s name or a dict with "framework" and options',
        )
    return canonical(returns), _drop_defaults(**extra)


def convert_result(
    result: Any, framework: str, options: dict[str, Any], has_scalars: bool = False
) -> Any:
    """A result converted to a framework, whether it is a tensor, a tree or neither.

    With `has_scalars`, NumPy scalars are tensors, unless they go to NumPy as they are.
    """
    if tensor_type_of(result) is not None:
        return to(result, framework, **options)
    if result is None:
        return None
    convert = _to_results if has_scalars and (framework != "numpy" or options) else _to_any
    return convert((result,), framework, **options)[0]


def return_to_origin(result: Any, origin: Origin, has_scalars: bool = False) -> Any:
    """A result converted to the framework and device of the first argument."""
    framework, device, traced, _ = origin
    if traced:
        return result
    if is_sparse_only(framework):
        return _return_to_sparse_origin(result, framework, {})
    known = tensor_type_of(result)
    if known is not None:
        found = known.origins.get(known.device_key(result))
        if found is not None and found.device == device:
            if known.framework == framework:
                return result
            if framework not in multi_cpu_frameworks:
                return to(result, framework)
    options = {} if framework == "numpy" else {"device": device}
    return convert_result(result, framework, options, has_scalars)


def _return_to_sparse_origin(result: Any, framework: str, options: dict[str, Any]) -> Any:
    """A result for an origin that has sparse tensors only, such as SciPy.

    Sparse tensors go to that framework, dense tensors to NumPy.
    """
    options = {name: option for name, option in options.items() if name != "device"}
    leaves, rebuild = flatten_tensors(result)
    return rebuild(
        [to(x, framework if sparse_framework_of(x) else "numpy", **options) for x in leaves]
    )


def _wrap(info: FunctionInfo, target: Target, fixed: str | None, extra: dict[str, Any]) -> Any:
    """The function that callers see."""
    from functools import wraps

    function, _, skip, _, is_async = info
    name, options = target
    # Functions of NumPy, and of sparse tensors over its arrays, return scalars for 0-d arrays.
    has_scalars = name == "numpy" or is_sparse_only(name)

    def convert_in(args: Any, keywords: Any) -> tuple[Any, Any, Origin | None]:
        try:
            origin = first_origin(args[skip:] if skip else args)
            if origin is None and keywords:
                origin = first_origin(info.order_keywords(keywords))
        except RecursionError:  # a container that holds itself: the conversion reports it better
            origin = None
        if origin is not None and origin.is_traced and origin.framework == name:
            return *convert_untraced(info, target, args, keywords), origin
        try:
            return *convert_arguments(args, keywords), origin
        except NotATensorError:
            if options or origin is None or not all_of_framework(name, (args[skip:], keywords)):
                raise
            # Tensors that torch.func transforms have no memory, and stay in their framework.
            return args, keywords, Origin(name, None, True)

    def convert_arguments(args: Any, keywords: Any) -> tuple[Any, Any]:
        if keywords:
            converted = _to_any((args[skip:], keywords), name, **options)
            return (*args[:skip], *converted[0]), converted[1]
        if skip:
            return (*args[:skip], *_to_any(args[skip:], name, **options)), keywords
        return _to_any(args, name, **options) if options else _to_any(args, name), keywords

    def convert_out(result: Any, origin: Origin | None) -> Any:
        try:
            if fixed is not None:
                return (
                    result if fixed == "keep" else convert_result(result, fixed, extra, has_scalars)
                )
            if origin is None:
                return result
            if extra and is_sparse_only(origin.framework):
                return _return_to_sparse_origin(result, origin.framework, extra)
            if extra:
                device = {} if origin.framework == "numpy" else {"device": origin.device}
                return convert_result(result, origin.framework, device | extra, has_scalars)
            return return_to_origin(result, origin, has_scalars)
        except FerryError as error:
            refuse_result(error, info.name, returns=fixed or "same")

    if is_async:

        @wraps(function)
        async def wrapper(*args: Any, **keywords: Any) -> Any:
            args, keywords, origin = convert_in(args, keywords)
            return convert_out(await function(*args, **keywords), origin)
    else:

        @wraps(function)
        def wrapper(*args: Any, **keywords: Any) -> Any:
            args, keywords, origin = convert_in(args, keywords)
            return convert_out(function(*args, **keywords), origin)

    return wrapper


def all_of_framework(framework: str, arguments: Any) -> bool:
    """Whether every tensor is of one framework."""
    return all(framework_of(x) == framework for x in flatten_tensors(arguments)[0])


def convert_untraced(
    info: FunctionInfo, target: Target, args: Any, keywords: Any
) -> tuple[Any, Any]:
    """Arguments in which traced values stay unchanged and other tensors are converted."""
    leaves, rebuild = flatten_tensors((args[info.skip :], keywords))
    name, options = target
    converted = [x if is_traced(x) else to(x, name, **options) for x in leaves]
    rest, keywords = rebuild(converted)
    return (*args[: info.skip], *rest), keywords
