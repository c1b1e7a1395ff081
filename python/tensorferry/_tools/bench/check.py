"""Checks of a conversion's result: framework, device, type, shape and every bit.

The checks do not use tensorferry: each framework reads its own tensors.
"""

from typing import Any

from tensorferry._tools import introspect
from tensorferry.framework_register import load


def describe_error(
    found: Any, target: str, device: str, x: Any, source: str, expected: bytes
) -> str:
    """A description of what is wrong with a result; empty if it is right.

    `expected` are the values of `x`, a tensor of `source`, as of `introspect.values`.
    """
    if not isinstance(found, _tensor_type(target)):
        return f"gives a {type(found).__module__}.{type(found).__name__}, not a tensor of {target}"
    if (actual := _device_type(target, found)) != device:
        return f"gives a tensor on {actual}, not on {device}"
    wanted = introspect.dtype(source, x)
    if (dtype := introspect.dtype(target, found)) != wanted:
        return f"gives {dtype}, not {wanted}"
    if tuple(found.shape) != tuple(x.shape):
        return f"gives the shape {tuple(found.shape)}, not {tuple(x.shape)}"
    if introspect.values(target, found) != expected:
        return "gives wrong values"
    return ""


def _tensor_type(framework: str) -> Any:
    module = load(framework)
    kinds = {"numpy": "ndarray", "cupy": "ndarray", "jax": "Array", "mlx": "array"}
    return getattr(module, kinds.get(framework, "Tensor"))


def _device_type(framework: str, x: Any) -> str:
    """`cpu` or `cuda`."""
    return introspect.device(framework, x).partition(":")[0]


def shares(x: Any, source: str, found: Any, target: str) -> bool | None:
    """Whether a result shares the source's memory; None if a framework does not tell."""
    if introspect.device(source, x) != introspect.device(target, found):
        return False
    try:
        return introspect.address(source, x) == introspect.address(target, found)
    except Exception:  # each framework raises its own class for tensors that it cannot export
        return None
