"""The origin of a function's arguments: the framework and device of the first tensor.

The native module recognises tensors; this module asks it for a plan, which moves nothing, and
remembers which types are tensors. Values that JAX or TensorFlow traces have no memory and therefore
no plan, but they have a framework. The same holds for tensors that `torch.func` transforms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple

from tensorferry._native import (
    FerryError,
    _is_refused,
    _plan_any,
    classify,
    classify_type,
    plan,
)
from tensorferry.framework_register import source_framework, variable_value
from tensorferry.functions.trees import Rebuild, flatten
from tensorferry.sparse.frameworks import sparse_framework_of

# Types that are neither tensors nor containers, whatever is registered later.
_NON_TENSOR_TYPES = frozenset({NoneType, bool, int, float, complex, str, bytes, type})


class Origin(NamedTuple):
    """The framework and device of a tensor, to which results return."""

    framework: str
    #: None for a traced value, and for an array that is sharded over several devices.
    device: str | None
    is_traced: bool = False
    is_sparse: bool = False


class TensorType(NamedTuple):
    """A type whose instances are tensors."""

    framework: str
    #: Returns a key that is equal for two tensors on one device; faster than a plan.
    device_key: Callable[[Any], Any]
    #: Origins by device key. A key that does not determine the device is never in here.
    origins: dict[Any, Origin]


_tensor_types: dict[type, TensorType] = {}

#: The frameworks with several CPU devices, of those whose tensors were seen. Host memory of another
#: framework does not go to the device of their tensors by default.
multi_cpu_frameworks: set[str] = set()

#: The result of `first_if_uniform` for tensors on several devices, and where it is not sure.
MIXED = object()


def framework_of(x: Any) -> str | None:
    """The framework of a tensor; None for containers and for other objects."""
    kind = type(x)
    known = _tensor_types.get(kind)
    if known is not None:
        return known.framework
    if kind in _NON_TENSOR_TYPES or kind in (tuple, list, dict):
        return None
    x = variable_value(x)
    found = _tracing_framework(x)
    return _query_native(x)[0] if found is None else found


def first_origin(arguments: Iterable[Any]) -> Origin | None:
    """The origin of the first tensor in several arguments, depth first."""
    for x in arguments:
        kind = type(x)
        known = _tensor_types.get(kind)
        if known is not None:
            return known.origins.get(known.device_key(x)) or _resolve_origin(x, known)
        if kind in _NON_TENSOR_TYPES:
            continue
        if kind is tuple or kind is list:
            origin = first_origin(x)
        elif kind is dict:
            origin = first_origin(x.values())
        else:
            x = variable_value(x)
            traced = _tracing_framework(x)
            origin = _query_native(x)[1] if traced is None else Origin(traced, None, True)
        if origin is not None:
            return origin
    return None


def first_if_uniform(arguments: Iterable[Any], first: Any = None) -> Any:
    """The first tensor, if all tensors have its framework and device; faster than plans.

    Returns None if no argument is a tensor, and MIXED if the tensors differ or a plan is needed.
    """
    for x in arguments:
        kind = type(x)
        known = _tensor_types.get(kind)
        if known is not None:
            if first is None:
                first = x
            else:
                framework, device_key, _ = _tensor_types[type(first)]
                if known.framework != framework or device_key(x) != device_key(first):
                    return MIXED
        elif kind in _NON_TENSOR_TYPES:
            continue
        elif kind is tuple or kind is list:
            first = first_if_uniform(x, first)
        elif kind is dict:
            first = first_if_uniform(x.values(), first)
        else:
            return MIXED
        if first is MIXED:
            return MIXED
    return first


def all_on_device(arguments: Iterable[Any], device: str | None) -> bool:
    """Whether all tensors are known to be on a device; if False, plans decide."""
    for x in arguments:
        kind = type(x)
        known = _tensor_types.get(kind)
        if known is None:
            if kind in _NON_TENSOR_TYPES:
                continue
            if kind is tuple or kind is list or kind is dict:
                if all_on_device(x.values() if kind is dict else x, device):
                    continue
                return False
            if framework_of(x) is None or kind not in _tensor_types:
                return False
            known = _tensor_types[kind]
        origin = known.origins.get(known.device_key(x))
        if origin is None:
            try:
                origin = _resolve_origin(x, known)
            except FerryError:  # x has no memory; the plans of all arguments report it
                return False
        if origin.device != device:
            return False
    return True


def tensor_type_of(x: Any) -> TensorType | None:
    """The known tensor type of an object, if an instance of it was seen before."""
    return _tensor_types.get(type(x))


def is_non_tensor(x: Any) -> bool:
    """Whether an object is a Python scalar, text, bytes, None or a type."""
    return type(x) in _NON_TENSOR_TYPES


def is_traced(x: Any) -> bool:
    """Whether JAX or TensorFlow traces a value, which then has no memory."""
    return type(x) not in _tensor_types and _tracing_framework(variable_value(x)) is not None


def is_sparse(x: Any) -> bool:
    """Whether a tensor is sparse; fast for known dense types."""
    known = _tensor_types.get(type(x))
    if known is not None and (
        known.framework != "torch" or x.layout is sys.modules["torch"].strided
    ):
        return False
    return sparse_framework_of(x) is not None


def flatten_tensors(tree: Any) -> tuple[list[Any], Rebuild]:
    """The tensors that `ferry.to` accepts in a tree, and a function that rebuilds the tree."""
    leaves, rebuild = flatten(tree, lambda x: framework_of(x) is not None, _contains_tensor)
    return [variable_value(x) for x in leaves], rebuild


def _contains_tensor(x: Any) -> bool:
    """Whether an object that is neither a tensor nor a container holds one.

    A masked array or a quantity with a unit raises, as it does in `ferry.to`.
    """
    origin = first_origin((x,))
    if origin is None and _is_refused(x):
        _plan_any((x,), "numpy")
    return origin is not None


def _resolve_origin(x: Any, known: TensorType) -> Origin:
    """The origin of a tensor whose device key is new."""
    origin = _make_origin(x, known.framework, plan(x, known.framework).source_device)
    if known.framework in ("torch", "cupy"):  # their device objects determine the device
        known.origins[known.device_key(x)] = origin
    return origin


def _make_origin(x: Any, framework: str, device: str) -> Origin:
    is_sharded = framework == "jax" and len(x.sharding.device_set) > 1
    return Origin(framework, None if is_sharded else device)


def _query_native(x: Any) -> tuple[str | None, Origin | None]:
    """The framework of a tensor, and the origin of the first tensor in it, by the native module."""
    known = classify_type(type(x))
    if known is None and hasattr(type(x), "__array_namespace__"):
        return None, None  # an array of another library, which `to` converts and nothing returns
    try:
        plans = _plan_any((x,), "numpy").parts
    except FerryError:
        # A tracer deep in a dataclass, for example: the conversion reports it better.
        return _origin_without_plan(x)
    for one in plans:
        name = source_framework(one)
        if name is not None:
            if one.name != "[0]":
                return None, Origin(name, one.source_device)
            origin = _make_origin(x, name, one.source_device)
            # A variable has a value while TensorFlow is eager, and none in a graph. Another masked
            # array may be refused.
            if known == (name, "dense") and (
                name != "tensorflow" or not isinstance(x, sys.modules[name].Variable)
            ):
                _register_type(type(x), name)
            return name, origin
    return None, None


def _origin_without_plan(x: Any) -> tuple[str | None, Origin | None]:
    """The same for objects without a single plan: sparse tensors, and values without memory."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor) and x.layout is torch.strided:
        return "torch", Origin("torch", str(x.device))
    name = sparse_framework_of(x)
    if name is None:
        leaves, _ = flatten(x, lambda part: part is not x and framework_of(part) is not None)
        return None, first_origin(leaves)
    try:
        device = plan(x, name).source_device
    except FerryError:
        # An unsupported format or a traced value: the conversion reports it better.
        return None, None
    return name, Origin(name, device, is_sparse=True)


def _register_type(kind: type, framework: str) -> None:
    host = Origin(framework, "cpu")
    # Two tensors of a framework that is not listed here never count as being on one device.
    device_key: Callable[[Any], Any] = id
    origins: dict[Any, Origin] = {}
    if framework == "numpy" or (framework == "jax" and _jax_has_one_device()):
        device_key, origins = _constant_key, {None: host}
    elif framework == "jax":
        device_key = attrgetter("sharding")
        if len(sys.modules["jax"].local_devices(backend="cpu")) > 1:
            multi_cpu_frameworks.add("jax")
    elif framework == "torch":
        device_key = attrgetter("device")
    elif framework == "cupy":
        device_key = attrgetter("device.id")  # its device objects are not hashable
    elif framework == "tensorflow":
        device_key = attrgetter("device")
        origins = {"/job:localhost/replica:0/task:0/device:CPU:0": host}
        if len(sys.modules["tensorflow"].config.list_logical_devices("CPU")) > 1:
            multi_cpu_frameworks.add("tensorflow")
    _tensor_types[kind] = TensorType(framework, device_key, origins)


def _constant_key(_x: Any) -> None:
    """The device key of a framework that has one device only."""


def _jax_has_one_device() -> bool:
    """Whether the host is JAX's only device, so that arrays need not be asked."""
    jax: Any = sys.modules["jax"]
    try:
        jax.devices("gpu")
    except RuntimeError:
        return bool(jax.default_backend() == "cpu" and len(jax.local_devices()) == 1)
    return False


def _tracing_framework(x: Any) -> str | None:
    """The framework that traces a value; None for objects that are not traced."""
    found = classify(x)
    if found is None:
        return None
    framework, kind = found
    if kind == "traced":
        return framework
    tensorflow: Any = sys.modules.get("tensorflow")
    is_graph_variable = (
        framework == "tensorflow"
        and isinstance(x, tensorflow.Variable)
        and not tensorflow.executing_eagerly()
    )
    return framework if is_graph_variable else None
