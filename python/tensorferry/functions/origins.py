"""Whose tensor is this, and where is it: what the decorators ask before they carry anything.

The native module recognises objects; this asks it by way of a plan, which moves nothing, and
remembers which types are tensors. Values in a function that JAX or TensorFlow is tracing have no
memory, so no plan either, but they do have a framework. So do tensors that `torch.func` transforms,
and sparse ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple

from tensorferry._native import FerryError, InvalidArgumentError, _plan_any, classify, plan
from tensorferry.framework_register import tensor_framework

# Neither tensors nor trees of them, whatever is registered later.
_PLAIN = frozenset({NoneType, bool, int, float, complex, str, bytes, type})


class Home(NamedTuple):
    """Where results go back to."""

    framework: str
    #: None for what is only traced, and has no place, and for what is spread over several devices.
    device: str | None
    traced: bool = False
    #: Whether the tensor is sparse.
    sparse: bool = False


class Known(NamedTuple):
    """A type that was seen to be a tensor's."""

    framework: str
    #: Says where a tensor is: equal for two that are in one place, and quicker than a plan.
    place: Callable[[Any], Any]
    #: The homes of places, made once. Where a place does not tell the device, it is not in here.
    homes: dict[Any, Home]


_known: dict[type, Known] = {}

#: The frameworks, of those whose tensors were seen, that have several CPU devices: their tensors
#: are not where host memory of another framework goes by itself.
several_cpus: set[str] = set()

#: What `alike` says of tensors that are in several places, or that it is not sure of.
APART = object()


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
            return known.homes.get(known.place(x)) or _settled(x, known)
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


def alike(arguments: Iterable[Any], first: Any = None) -> Any:
    """The first tensor, if all are of its framework and in its place: quicker than plans.

    None where there is no tensor, and APART where there are others, or what must be looked into.
    """
    for x in arguments:
        kind = type(x)
        known = _known.get(kind)
        if known is not None:
            if first is None:
                first = x
            else:
                framework, place, _ = _known[type(first)]
                if known.framework != framework or place(x) != place(first):
                    return APART
        elif kind in _PLAIN:
            continue
        elif kind is tuple or kind is list:
            first = alike(x, first)
        elif kind is dict:
            first = alike(x.values(), first)
        else:
            return APART
        if first is APART:
            return APART
    return first


def all_on(arguments: Iterable[Any], device: str | None) -> bool:
    """Whether all tensors surely are on a device; where it says no, plans know."""
    for x in arguments:
        kind = type(x)
        known = _known.get(kind)
        if known is None:
            if kind in _PLAIN:
                continue
            if kind is tuple or kind is list or kind is dict:
                if all_on(x.values() if kind is dict else x, device):
                    continue
                return False
            if framework_of(x) is None or kind not in _known:
                return False
            known = _known[kind]
        home = known.homes.get(known.place(x))
        if home is None:
            try:
                home = _settled(x, known)
            except FerryError:  # no memory: plans of all of them say what that is
                return False
        if home.device != device:
            return False
    return True


def known_as(x: Any) -> Known | None:
    """What is known of an object's type, if it was seen to be a tensor before."""
    return _known.get(type(x))


def is_plain(x: Any) -> bool:
    """Whether an object is one of Python's own, which is no tensor and has none in it."""
    return type(x) in _PLAIN


def is_traced(x: Any) -> bool:
    """Whether a value is only traced, by JAX or TensorFlow, and has no memory."""
    return type(x) not in _known and _traced(x) is not None


def is_sparse(x: Any) -> bool:
    """Whether a tensor is sparse; quick for those that surely are not."""
    known = _known.get(type(x))
    if known is not None and (
        known.framework != "torch" or x.layout is sys.modules["torch"].strided
    ):
        return False
    from tensorferry.sparse import is_sparse as is_one  # not above: it imports NumPy

    return is_one(x)


def _settled(x: Any, known: Known) -> Home:
    """The home of a tensor whose place was not seen before."""
    home = _home(x, known.framework, plan(x, known.framework).source_device)
    if known.framework in ("torch", "cupy"):  # their devices say where memory is
        known.homes[known.place(x)] = home
    return home


def _home(x: Any, framework: str, device: str) -> Home:
    spread = framework == "jax" and len(x.sharding.device_set) > 1
    return Home(framework, None if spread else device)


def _asked(x: Any) -> tuple[str | None, Home | None]:
    """What the native module says: whose tensor this is, and which tensor in it is the first."""
    try:
        told = _plan_any((x,), "numpy").parts
    except FerryError:
        # A tracer deep in a dataclass: the trip says it better.
        return _without_plan(x)
    for one in told:
        name = one.source
        if _is_framework(name):
            if one.name != "[0]":
                return None, Home(name, one.source_device)
            home = _home(x, name, one.source_device)
            # A variable has a value while TensorFlow is eager, and in a graph it has none.
            if name != "tensorflow" or not isinstance(x, sys.modules[name].Variable):
                _remember(type(x), name)
            return name, home
    return None, None


def _without_plan(x: Any) -> tuple[str | None, Home | None]:
    """The same for what has no single plan: sparse tensors, and what has no memory of its own."""
    from tensorferry.functions.sparse_origins import first_sparse

    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and x.layout is torch.strided:
        return "torch", Home("torch", str(x.device))
    return first_sparse(x)


def _remember(kind: type, framework: str) -> None:
    host = Home(framework, "cpu")
    # Of frameworks that are not spoken of here, no two tensors are taken to be in one place.
    place: Callable[[Any], Any] = id
    homes: dict[Any, Home] = {}
    if framework == "numpy" or (framework == "jax" and _only_host()):
        place, homes = _nowhere, {None: host}
    elif framework == "jax":
        place = attrgetter("sharding")
        if len(sys.modules["jax"].local_devices(backend="cpu")) > 1:
            several_cpus.add("jax")
    elif framework == "torch":
        place = attrgetter("device")
    elif framework == "cupy":
        place = attrgetter("device.id")  # its devices have no hash
    elif framework == "tensorflow":
        place, homes = attrgetter("device"), {"/job:localhost/replica:0/task:0/device:CPU:0": host}
        if len(sys.modules["tensorflow"].config.list_logical_devices("CPU")) > 1:
            several_cpus.add("tensorflow")
    _known[kind] = Known(framework, place, homes)


def _nowhere(_x: Any) -> None:
    """The place of tensors of a framework that has one place only."""


def _only_host() -> bool:
    """Whether JAX has one device, the host, so that nobody need ask an array."""
    jax: Any = sys.modules["jax"]
    try:
        jax.devices("gpu")
    except RuntimeError:
        return bool(jax.default_backend() == "cpu" and len(jax.local_devices()) == 1)
    return False


def _is_framework(source: str) -> bool:
    """Whether the source of a plan is a framework, and not a buffer or another protocol."""
    try:
        return tensor_framework(source) == source
    except InvalidArgumentError:
        return False


def _traced(x: Any) -> str | None:
    """The framework that is tracing a value, which has no memory; None for all others."""
    found = classify(x)
    if found is None:
        return None
    framework, kind = found
    if kind == "traced":
        return framework
    tensorflow: Any = sys.modules.get("tensorflow")
    in_graph = (
        framework == "tensorflow"
        and isinstance(x, tensorflow.Variable)
        and not tensorflow.executing_eagerly()
    )
    return framework if in_graph else None
