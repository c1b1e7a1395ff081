"""Gradients between frameworks: `@ferry.via(..., grad=True)`.

The caller's framework sees one operation. Its forward pass is the decorated function, its backward
pass is the function's vector-Jacobian product; `ferry.to` converts tensors and gradients. `call` is
one call, `vjp` runs the function in its framework, `shapes` infers the results without values, and
`operations` defines the operation in the caller's framework.

Only tensors of the caller's framework are differentiated: the framework of the first argument that
is PyTorch's, JAX's or TensorFlow's. If it is the function's own framework, nothing is converted.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tensorferry.functions.callables import FunctionInfo, refuse
from tensorferry.functions.gradients.call import DifferentiableCall
from tensorferry.functions.gradients.operations import OPERATIONS
from tensorferry.functions.origins import flatten_tensors


def check_framework(framework: str, returns_to_origin: bool) -> None:
    """Refuses options that can never give a gradient, when a function is decorated."""
    if framework not in OPERATIONS:
        refuse(
            f"grad=True does not support {framework}",
            "leave grad=True out, or write the function in torch, jax or tensorflow",
        )
    if not returns_to_origin:
        refuse("grad=True returns results to the caller's framework", "leave returns= out")


def differentiable(
    info: FunctionInfo, framework: str, options: dict[str, Any]
) -> Callable[..., Any]:
    """The function that callers see."""
    if info.is_async:
        refuse(
            f"grad=True does not accept an async function, and {info.name} is async",
            "decorate the function that computes, and await outside of it",
        )
    skip = info.skip

    @wraps(info.function)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        ordered = {name: keywords[name] for name in info.names if name in keywords} | keywords
        leaves, rebuild = flatten_tensors((args[skip:], ordered))

        def run(converted: Sequence[Any]) -> Any:
            rest, named = rebuild(converted)
            return info.function(*args[:skip], *rest, **named)

        call = DifferentiableCall(info.name, framework, options, run, leaves)
        call.check_arguments()
        if call.caller is None or call.caller == framework:
            return call.without_gradients()
        return OPERATIONS[call.caller](call)

    return wrapper
