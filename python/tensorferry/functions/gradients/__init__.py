"""Gradients across the border: `@ferry.via(..., grad=True)`.

The caller's framework is told of one operation whose forward pass is the body and whose backward
pass is the body's vector-Jacobian product; tensors and gradients cross by `ferry.to`. `crossing` is
one call, `bodies` has the side of the body's framework, `callers` that of the caller's.

Only the tensors of the caller's framework take part: that of the first argument which is PyTorch's,
JAX's or TensorFlow's. Where it is the body's own, there is no border.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tensorferry.functions.callables import Body, refuse
from tensorferry.functions.gradients.call import Crossing
from tensorferry.functions.gradients.operations import CALLERS
from tensorferry.functions.trees import flatten


def check(framework: str, goes_home: bool) -> None:
    """Refuses, when a function is decorated, what can never have a gradient."""
    if framework not in CALLERS:
        refuse(
            f"{framework} has no vector-Jacobian product that callers could use",
            "leave grad=True out, or write the body in torch, jax or tensorflow",
        )
    if not goes_home:
        refuse("grad=True sends results back to the caller's framework", "leave returns= out")


def bordered(body: Body, framework: str, wishes: dict[str, Any]) -> Callable[..., Any]:
    """The function that callers see."""
    if body.is_async:
        refuse(
            f"grad=True takes no async function, and {body.name} is one",
            "decorate the function that computes, and await outside of it",
        )
    skip = body.skip

    @wraps(body.function)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        ordered = {name: keywords[name] for name in body.names if name in keywords} | keywords
        leaves, rebuild = flatten((args[skip:], ordered))

        def call(there: Sequence[Any]) -> Any:
            rest, named = rebuild(there)
            return body.function(*args[:skip], *rest, **named)

        crossing = Crossing(framework, wishes, call, leaves)
        crossing.refuse_others()
        if crossing.caller is None or crossing.caller == framework:
            return crossing.plain()
        return CALLERS[crossing.caller](crossing)

    return wrapper
