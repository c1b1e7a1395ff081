"""Whose tensor is this, and where is it: what the decorators ask before they carry anything.

The native module recognises objects; this asks it by way of a plan, which moves nothing, and
remembers which types are tensors. Values in a function that JAX or TensorFlow is tracing have no
memory, so no plan either, but they do have a framework.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType, NoneType
from typing import Any, NamedTuple

from tensorferry._native import FerryError, InvalidArgument, frameworks, plan

BUILTIN = frozenset({"numpy", "cupy", "torch", "jax", "tensorflow", "paddle", "mlx"})
_ALIASES = {
    "np": "numpy",
    "pytorch": "torch",
    "jnp": "jax",
    "jax.numpy": "jax",
    "tf": "tensorflow",
    "mlx.core": "mlx",
}
# Neither tensors nor trees of them, whatever is registered later.
_PLAIN = frozenset({NoneType, bool, int, float, complex, str, bytes, type})
# Types that were seen to be tensors, and whose.
_known: dict[type, str] = {}


class Home(NamedTuple):
    """Where results go back to."""

    framework: str
    #: None for what is only traced, and has no place.
    device: str | None
    traced: bool = False
    #: The tensor itself, unless only the native module can see where it is.
    tensor: Any = None


def called(framework: str | ModuleType) -> str:
    """A framework's one name, for any of its names or its module; does not import it."""
    name = framework.__name__ if isinstance(framework, ModuleType) else str(framework)
    name = _ALIASES.get(name, name)
    if name in BUILTIN:
        return name
    there = [info.name for info in frameworks()]
    if name not in there:
        raise InvalidArgument(
            f"no framework is called {name!r}\nhint: write one of {', '.join(there)}"
        )
    return name


def framework_of(x: Any) -> str | None:
    """Whose tensor an object is; None for trees, for plain objects and for tensors of nobody."""
    kind = type(x)
    found = _known.get(kind)
    if found is not None:
        return found
    if kind in _PLAIN or kind in (tuple, list, dict):
        return None
    found = _traced(x)
    return _asked(x)[0] if found is None else found


def home_of(x: Any) -> Home | None:
    """The home of the first tensor in an argument, depth first."""
    kind = type(x)
    known = _known.get(kind)
    if known is not None:
        return Home(known, plan(x, known).source_device, False, x)
    if kind in _PLAIN:
        return None
    if kind is tuple or kind is list:
        return first_home(x)
    if kind is dict:
        return first_home(x.values())
    traced = _traced(x)
    return Home(traced, None, True, x) if traced is not None else _asked(x)[1]


def first_home(arguments: Iterable[Any]) -> Home | None:
    """The home of the first tensor in several arguments."""
    for x in arguments:
        home = home_of(x)
        if home is not None:
            return home
    return None


def is_known(x: Any) -> bool:
    """Whether an object is of a type that was seen to be a tensor: quick, and not the last word."""
    return type(x) in _known


def is_traced(x: Any) -> bool:
    """Whether a value is only traced, by JAX or TensorFlow, and has no memory."""
    return type(x) not in _known and _traced(x) is not None


def _asked(x: Any) -> tuple[str | None, Home | None]:
    """What the native module says: whose tensor this is, and which tensor in it is the first."""
    try:
        told = plan((x,), "numpy").plans
    except FerryError:
        # A tracer deep in a dataclass, a tensor without memory: the trip says it better.
        return None, None
    for path, one in told:
        if one.source in BUILTIN or one.source in {info.name for info in frameworks()}:
            home = Home(one.source, one.source_device)
            if path != "[0]":
                return None, home
            _known[type(x)] = one.source
            return one.source, home._replace(tensor=x)
    return None, None


def _traced(x: Any) -> str | None:
    jax: Any = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.core.Tracer):
        return "jax"
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.is_symbolic_tensor(x):
        return "tensorflow"
    return None
