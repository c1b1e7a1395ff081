"""Whether a method did its job: right framework, right place, right type, and every bit.

Nothing here goes through tensorferry: results are read by their own framework's road to the host.
"""

from typing import Any

from tensorferry._tools import introspect
from tensorferry.framework_register import load


def fault(found: Any, target: str, device: str, x: Any, source: str, expected: bytes) -> str:
    """What is wrong with a result, in words; empty where nothing is.

    `expected` are the values of `x`, a tensor of `source`, as `introspect.values` gives them.
    """
    if not isinstance(found, _kind(target)):
        return f"gives a {type(found).__module__}.{type(found).__name__}, not a tensor of {target}"
    if (place := _place(target, found)) != device:
        return f"gives a tensor on {place}, not on {device}"
    wanted = introspect.dtype(source, x)
    if (dtype := introspect.dtype(target, found)) != wanted:
        return f"gives {dtype}, not {wanted}"
    if tuple(found.shape) != tuple(x.shape):
        return f"gives the shape {tuple(found.shape)}, not {tuple(x.shape)}"
    if introspect.values(target, found) != expected:
        return "gives wrong values"
    return ""


def _kind(framework: str) -> Any:
    module = load(framework)
    kinds = {"numpy": "ndarray", "cupy": "ndarray", "jax": "Array", "mlx": "array"}
    return getattr(module, kinds.get(framework, "Tensor"))


def _place(framework: str, x: Any) -> str:
    """`cpu` or `cuda`."""
    return introspect.place(framework, x).partition(":")[0]


def shares(x: Any, source: str, found: Any, target: str) -> bool | None:
    """Whether a result is over the source's memory; None where one of them does not say."""
    if introspect.place(source, x) != introspect.place(target, found):
        return False
    try:
        return introspect.address(source, x) == introspect.address(target, found)
    except Exception:  # what cannot be exported, each framework refuses in words of its own
        return None
