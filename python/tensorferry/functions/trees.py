"""Flattening of containers into leaves, and rebuilding them from other leaves.

`ferry.to` walks trees natively and faster, but does not return the leaves, which gradients and
traced values need. The supported containers are the same with one exception: containers known only
to `ferry.register_container` cannot be flattened here, and are refused if they hold tensors.
"""

import copy
import functools
import sys
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

from tensorferry._native import InvalidArgumentError, _fast_path_enabled, _fast_path_probed

MAX_TREE_DEPTH = 100

# Makes a node, or a leaf, from the new leaves.
Rebuild = Callable[[Sequence[Any]], Any]


def flatten(
    tree: Any,
    is_leaf: Callable[[Any], bool],
    holds_tensor: Callable[[Any], bool] = lambda _node: False,
) -> tuple[list[Any], Rebuild]:
    """The leaves of a tree, each once, and a function that rebuilds the tree from other leaves.

    Args:
        tree: Containers, leaves and other objects, which stay unchanged.
        is_leaf: Whether an object is a leaf.
        holds_tensor: Whether an object that cannot be flattened holds a tensor; it is then refused.
    """
    flattener = _Flattener(is_leaf, holds_tensor)
    rebuild = flattener.walk(tree, 0)
    return flattener.leaves, rebuild


class _Flattener:
    def __init__(self, is_leaf: Callable[[Any], bool], holds_tensor: Callable[[Any], bool]) -> None:
        self.is_leaf = is_leaf
        self.holds_tensor = holds_tensor
        self.leaves: list[Any] = []
        self.indices: dict[int, int] = {}

    def walk(self, x: Any, depth: int) -> Rebuild:
        if depth > MAX_TREE_DEPTH:
            raise InvalidArgumentError(
                f"the tree is nested more than {MAX_TREE_DEPTH} levels deep"
                "\nhint: check that no container contains itself"
            )
        if self.is_leaf(x):
            index = self.indices.setdefault(id(x), len(self.leaves))
            if index == len(self.leaves):
                self.leaves.append(x)
            return lambda leaves: leaves[index]
        node = _flatten_node(x)
        if node is None:
            if self.holds_tensor(x):
                raise InvalidArgumentError(
                    f"the tensors in a {type(x).__qualname__} cannot be reached here, "
                    "because only ferry.register_container knows the type"
                    "\nhint: register it with jax.tree_util or torch's pytrees, or pass a dict"
                )
            return lambda _leaves: x
        children, rebuild_node = node
        walked = [self.walk(child, depth + 1) for child in children]
        return lambda leaves: rebuild_node([child(leaves) for child in walked])


def _flatten_node(x: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    """The children of a container and a function that rebuilds it; None for other objects."""
    if isinstance(x, dict):
        keys = list(x)
        return [x[key] for key in keys], lambda new: _rebuild_dict(x, keys, new)
    if isinstance(x, tuple):
        if type(x) is tuple:
            return list(x), tuple
        if hasattr(x, "_fields"):
            return list(x), type(x)._make  # type: ignore[attr-defined]
        return list(x), lambda new: tuple.__new__(type(x), new)
    if isinstance(x, (list, deque)):
        return list(x), lambda new: _rebuild_list(x, new)
    registered = _flatten_registered_node(x)
    if registered is not None:
        return registered
    if isinstance(x, MappingProxyType):
        return [x.copy()], lambda new: MappingProxyType(new[0])
    names = [name for name in _attribute_names(x) if hasattr(x, name)]
    if not names:
        return None
    values = [getattr(x, name) for name in names]
    return values, lambda new: _replace_attributes(x, dict(zip(names, new, strict=True)))


def _attribute_names(x: Any) -> list[str]:
    """The attributes in which a container stores its parts; empty for other objects."""
    if isinstance(x, (UserDict, UserList)):
        return ["data"]
    if isinstance(x, ChainMap):
        return ["maps"]
    if isinstance(x, SimpleNamespace):
        return list(vars(x))
    if isinstance(x, type):
        return []
    if is_dataclass(x):
        return [field.name for field in fields(x)]
    return [field.name for field in getattr(type(x), "__attrs_attrs__", ())]


def _rebuild_dict(old: Any, keys: list[Any], values: list[Any]) -> Any:
    pairs = dict(zip(keys, values, strict=True))
    if type(old) is dict:
        return pairs
    new = copy.copy(old)
    for key, value in pairs.items():
        new[key] = value
    return new


def _rebuild_list(old: Any, values: list[Any]) -> Any:
    if type(old) is list:
        return values
    new = copy.copy(old)
    for index, value in enumerate(values):
        new[index] = value
    return new


def _replace_attributes(old: Any, values: dict[str, Any]) -> Any:
    new = copy.copy(old)
    for name, value in values.items():
        object.__setattr__(new, name, value)  # works for frozen dataclasses too
    return new


def _flatten_registered_node(x: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    """A node that is registered with JAX or PyTorch, if these are imported."""
    jax: Any = sys.modules.get("jax")
    if jax is not None:
        children, structure = jax.tree_util.tree_flatten(x, is_leaf=lambda y: y is not x)
        if len(children) != 1 or children[0] is not x:
            return children, structure.unflatten
    pytree: Any = sys.modules.get("torch.utils._pytree")
    if pytree is not None and _torch_pytree_works(pytree):
        children, context = pytree.tree_flatten(x, is_leaf=lambda y: y is not x)
        if len(children) != 1 or children[0] is not x:
            return children, lambda new: pytree.tree_unflatten(new, context)
    return None


@functools.cache
def _torch_pytree_works(pytree: Any) -> bool:
    """Whether PyTorch's private module flattens and rebuilds a dict as expected."""
    if not _fast_path_enabled("torch.pytree"):
        return False
    tree = {"a": 1, "b": 2}
    try:
        children, context = pytree.tree_flatten(tree, is_leaf=lambda y: y is not tree)
        rebuilt = pytree.tree_unflatten(children, context)
        reason = None if (children, rebuilt) == ([1, 2], tree) else f"a dict became {rebuilt}"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    _fast_path_probed("torch.pytree", reason)
    return reason is None
