"""Sparse tensors as arguments: whose they are, and how results go back to those who passed them.

SciPy and the package `sparse` have no dense tensors of their own: what a function makes of theirs
goes to them if it is sparse, and to NumPy if it is not.
"""

from typing import Any

from tensorferry._native import FerryError, plan, to
from tensorferry.functions.origins import Home, first_home, framework_of
from tensorferry.functions.trees import flatten
from tensorferry.sparse import is_sparse
from tensorferry.sparse.frameworks import owner


def first_sparse(x: Any) -> tuple[str | None, Home | None]:
    """Whose sparse tensor this is, and the home of the first tensor in it if it is a container."""
    name = owner(x)
    if name is None:
        leaves, _ = flatten(x, lambda part: part is not x and framework_of(part) is not None)
        return None, first_home(leaves)
    try:
        device = plan(x, name).source_device
    except FerryError:
        # A format that is not carried, a traced one: the trip says it better.
        return None, None
    return name, Home(name, device, sparse=True)


def carried_apart(result: Any, framework: str, wishes: dict[str, Any]) -> Any:
    """A result for somebody who passed a tensor of a framework that holds sparse ones only."""
    wishes = {name: wish for name, wish in wishes.items() if name != "device"}
    leaves, rebuild = flatten(result)
    return rebuild([to(x, framework if is_sparse(x) else "numpy", **wishes) for x in leaves])
