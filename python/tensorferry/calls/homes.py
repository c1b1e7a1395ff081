"""Whose tensor is this, and where is it: what the decorators ask before they carry anything.

The native module recognises objects; this asks it by way of a plan, which moves nothing, and
remembers which types are tensors. Values in a function that JAX or TensorFlow is tracing have no
memory, so no plan either, but they do have a framework.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
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


class Home(NamedTuple):
    """Where results go back to."""

    framework: str
    #: None for what is only traced, and has no place.
    device: str | None
    traced: bool = False


class Known(NamedTuple):
    """A type that was seen to be a tensor's."""

    framework: str
    #: The home of those in the host's memory, made once.
    host: Home
    #: Whether a tensor surely is there: quicker than a plan.
    is_on_host: Callable[[Any], bool]


_known: dict[type, Known] = {}


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
    known = _known.get(kind)
    if known is not None:
        return known.framework
    if kind in _PLAIN or kind in (tuple, list, dict):
        return None
    found = _traced(x)
    return _asked(x)[0] if found is None else found


def first_home(arguments: Iterable[Any]) -> Home | None:
    """The home of the first tensor in several arguments, depth first."""
    for x in arguments:
        kind = type(x)
        known = _known.get(kind)
        if known is not None:
            framework, host, is_on_host = known
            return host if is_on_host(x) else Home(framework, plan(x, framework).source_device)
        if kind in _PLAIN:
            continue
        if kind is tuple or kind is list:
            home = first_home(x)
        elif kind is dict:
            home = first_home(x.values())
        else:
            traced = _traced(x)
            home = _asked(x)[1] if traced is None else Home(traced, None, True)
        if home is not None:
            return home
    return None


def all_on_host(arguments: Iterable[Any], framework: str) -> bool | None:
    """Whether all tensors among arguments are a framework's; None if one may not be on the host.

    A walk over what everybody passes, which is quicker than a plan: tensors of types that were seen
    before, in plain containers.
    """
    same = True
    for x in arguments:
        kind = type(x)
        known = _known.get(kind)
        if known is None:
            if kind in _PLAIN:
                continue
            if kind is tuple or kind is list or kind is dict:
                within = all_on_host(x.values() if kind is dict else x, framework)
                if within is None:
                    return None
                same = same and within
                continue
            # The first of its type says what the others are.
            if framework_of(x) is None or (known := _known.get(kind)) is None:
                return None
        if not known.is_on_host(x):
            return None
        same = same and known.framework == framework
    return same


def known_as(x: Any) -> Known | None:
    """What is known of an object's type, if it was seen to be a tensor before."""
    return _known.get(type(x))


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
        name = one.source
        if name in BUILTIN or name in {info.name for info in frameworks()}:
            home = Home(name, one.source_device)
            if path != "[0]":
                return None, home
            _known[type(x)] = Known(name, Home(name, "cpu"), _host_test(name))
            return name, home
    return None, None


def _always(_x: Any) -> bool:
    return True


def _never(_x: Any) -> bool:
    return False


def _host_test(framework: str) -> Callable[[Any], bool]:
    if framework == "numpy":
        return _always
    if framework == "torch":
        return attrgetter("is_cpu")
    if framework == "tensorflow":
        tensorflow: Any = sys.modules["tensorflow"]
        if not tensorflow.config.list_logical_devices("GPU"):
            return _always
        return lambda x: bool(x.device == "/job:localhost/replica:0/task:0/device:CPU:0")
    if framework == "jax":
        # Asking each array takes long; where JAX has nothing but the host, nobody need ask.
        jax: Any = sys.modules["jax"]
        try:
            jax.devices("gpu")
        except RuntimeError:
            return _always if jax.default_backend() == "cpu" else _never
    return _never


def _traced(x: Any) -> str | None:
    jax: Any = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.core.Tracer):
        return "jax"
    tensorflow: Any = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.is_symbolic_tensor(x):
        return "tensorflow"
    return None
