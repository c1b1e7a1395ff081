"""The tensors in a tree, in a list, and the way back: what gradients and traced values need.

`ferry.to` walks trees natively and faster, but it hands out no leaves. The containers are the same,
with one exception: what only `ferry.register_container` knows cannot be seen into from here, and is
refused.
"""

import copy
import functools
import sys
from collections import UserDict, UserList, deque
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from tensorferry._native import InvalidArgumentError, _fast_path_enabled, _fast_path_probed
from tensorferry.functions.origins import first_home, framework_of

DEEPEST = 100

# Makes a node, or a leaf, from the new leaves.
Rebuild = Callable[[Sequence[Any]], Any]


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Rebuild]:
    """The tensors of a tree, each once, and a function that makes the tree from others.

    Args:
        tree: Containers, tensors and anything else, which stays as it is.
        is_leaf: What counts as a tensor; those that `ferry.to` takes if left out.
    """
    walker = _Walker(is_leaf or (lambda x: framework_of(x) is not None), checks=is_leaf is None)
    rebuild = walker.walk(tree, 0)
    return walker.leaves, rebuild


class _Walker:
    def __init__(self, is_leaf: Callable[[Any], bool], checks: bool) -> None:
        self.is_leaf = is_leaf
        self.checks = checks
        self.leaves: list[Any] = []
        self.numbers: dict[int, int] = {}

    def walk(self, x: Any, depth: int) -> Rebuild:
        if depth > DEEPEST:
            raise InvalidArgumentError(
                f"the tree is nested more than {DEEPEST} deep"
                "\nhint: check that no container holds itself"
            )
        if self.is_leaf(x):
            number = self.numbers.setdefault(id(x), len(self.leaves))
            if number == len(self.leaves):
                self.leaves.append(x)
            return lambda leaves: leaves[number]
        parts = _parts(x)
        if parts is None:
            if self.checks and first_home((x,)) is not None:
                raise InvalidArgumentError(
                    f"tensors in a {type(x).__qualname__} cannot be seen here, "
                    "because only ferry.register_container knows it"
                    "\nhint: register it with jax.tree_util or torch's pytrees, or pass a dict"
                )
            return lambda _leaves: x
        children, make = parts
        walked = [self.walk(child, depth + 1) for child in children]
        return lambda leaves: make([child(leaves) for child in walked])


def _parts(x: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    """The children of a container, and how one like it is made of others; None for all else."""
    if isinstance(x, dict):
        keys = list(x)
        return [x[key] for key in keys], lambda new: _refilled(x, keys, new)
    if isinstance(x, tuple):
        if type(x) is tuple:
            return list(x), tuple
        if hasattr(x, "_fields"):
            return list(x), type(x)._make  # type: ignore[attr-defined]
        return list(x), lambda new: tuple.__new__(type(x), new)
    if isinstance(x, (list, deque)):
        return list(x), lambda new: _relisted(x, new)
    if isinstance(x, (UserDict, UserList)):
        return [x.data], lambda new: _with(x, {"data": new[0]})
    if is_dataclass(x) and not isinstance(x, type):
        names = [field.name for field in fields(x) if hasattr(x, field.name)]
        values = [getattr(x, name) for name in names]
        return values, lambda new: _with(x, dict(zip(names, new, strict=True)))
    return _foreign(x)


def _refilled(old: Any, keys: list[Any], values: list[Any]) -> Any:
    pairs = dict(zip(keys, values, strict=True))
    if type(old) is dict:
        return pairs
    new = copy.copy(old)
    for key, value in pairs.items():
        new[key] = value
    return new


def _relisted(old: Any, values: list[Any]) -> Any:
    if type(old) is list:
        return values
    new = copy.copy(old)
    for number, value in enumerate(values):
        new[number] = value
    return new


def _with(old: Any, values: dict[str, Any]) -> Any:
    new = copy.copy(old)
    for name, value in values.items():
        object.__setattr__(new, name, value)  # frozen dataclasses too
    return new


def _foreign(x: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    """A node that JAX or PyTorch has registered, while these are loaded."""
    jax: Any = sys.modules.get("jax")
    if jax is not None:
        children, structure = jax.tree_util.tree_flatten(x, is_leaf=lambda y: y is not x)
        if len(children) != 1 or children[0] is not x:
            return children, structure.unflatten
    pytree: Any = sys.modules.get("torch.utils._pytree")
    if pytree is not None and _takes_apart(pytree):
        children, context = pytree.tree_flatten(x, is_leaf=lambda y: y is not x)
        if len(children) != 1 or children[0] is not x:
            return children, lambda new: pytree.tree_unflatten(new, context)
    return None


@functools.cache
def _takes_apart(pytree: Any) -> bool:
    """Whether PyTorch's private module takes a tree apart and puts it together as expected."""
    if not _fast_path_enabled("torch.pytree"):
        return False
    tree = {"a": 1, "b": 2}
    try:
        children, context = pytree.tree_flatten(tree, is_leaf=lambda y: y is not tree)
        whole = pytree.tree_unflatten(children, context)
        reason = None if (children, whole) == ([1, 2], tree) else f"a dict is taken for {whole}"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    _fast_path_probed("torch.pytree", reason)
    return reason is None
