"""Breaks what the probes of the fast paths look at, converts, and prints the states as JSON.

Every probe that has a function in `BREAKS` fails, and every value is right nevertheless.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from support.subprocesses import import_frameworks

NAMES = ("numpy", "torch", "jax", "mlx")
import_frameworks(*NAMES)

import jax  # noqa: E402
import jax._src.config  # noqa: E402
import jax.experimental.sparse  # noqa: E402
import numpy as np  # noqa: E402
import scipy.sparse  # noqa: E402
import torch  # noqa: E402
import torch.utils._pytree  # noqa: E402

# Functions that make PyTorch and NumPy whole again, once their probes have run.
undo: list[Callable[[], None]] = []


def lazy_bits() -> None:
    """A conjugate without its bit."""
    conj = torch.Tensor.conj
    torch.Tensor.conj = lambda self: conj(self).resolve_conj()
    undo.append(lambda: setattr(torch.Tensor, "conj", conj))


def requires_grad() -> None:
    """An attribute of the public class that differs from the C++ function."""
    torch.Tensor.requires_grad = property(lambda self: False)
    undo.append(lambda: delattr(torch.Tensor, "requires_grad"))


def tensor_base() -> None:
    """An attribute of the public class that differs from the private one's."""
    torch.Tensor.is_leaf = property(lambda self: "yes")
    undo.append(lambda: delattr(torch.Tensor, "is_leaf"))


def exchange_api() -> None:
    """Strides in another order."""
    stride = torch.Tensor.stride
    torch.Tensor.stride = lambda self, *axis: tuple(reversed(stride(self, *axis)))
    undo.append(lambda: delattr(torch.Tensor, "stride"))


def storage() -> None:
    """A tensor of an array that has other memory."""
    from_numpy = torch.from_numpy
    torch.from_numpy = lambda array: torch.ones(array.shape)
    undo.append(lambda: setattr(torch, "from_numpy", from_numpy))


def pytree() -> None:
    """A dictionary without children."""
    nodes = torch.utils._pytree.SUPPORTED_NODES
    node = nodes[dict]

    def flatten(tree: dict[Any, Any]) -> tuple[list[Any], None]:
        return [], None

    if hasattr(node, "_replace"):
        nodes[dict] = node._replace(flatten_fn=flatten)
    else:
        nodes[dict] = type(node)(node.type, flatten, node.unflatten_fn, node.flatten_with_keys_fn)


def array_struct() -> None:
    """Arrays whose base is not what the structure says."""
    zeros = np.zeros

    class Odd(np.ndarray[Any, Any]):
        base = property(lambda self: None)

    np.zeros = lambda *given, **more: zeros(*given, **more).view(Odd)  # type: ignore[misc]
    undo.append(lambda: setattr(np, "zeros", zeros))


def enable_x64() -> None:
    """A setting that is always off."""

    class Off:
        value = False

    jax._src.config.enable_x64 = Off


def tree_unflatten() -> None:
    """A sparse array that loses its flags and its shape."""
    kind = jax.experimental.sparse.BCOO
    true = kind.tree_unflatten.__func__

    def forgetful(kind: Any, flags: dict[str, Any], parts: Any) -> Any:
        return true(kind, {**flags, "indices_sorted": False, "shape": (9, 9)}, parts)

    kind.tree_unflatten = classmethod(forgetful)


def without_constructor() -> None:
    """A constructor that sets an attribute which nobody knows."""
    make = scipy.sparse.csr_array.__init__

    def with_more(self: Any, *given: Any, **more: Any) -> None:
        make(self, *given, **more)
        self.noted = True

    scipy.sparse.csr_array.__init__ = with_more


BREAKS: dict[str, Callable[[], None]] = {
    "torch.lazy_bits": lazy_bits,
    "torch.requires_grad": requires_grad,
    "torch.tensor_base": tensor_base,
    "torch.exchange_api": exchange_api,
    "torch.storage": storage,
    "torch.pytree": pytree,
    "numpy.array_struct": array_struct,
    "jax.enable_x64": enable_x64,
    "jax.tree_unflatten": tree_unflatten,
    "scipy.without_constructor": without_constructor,
}


def main() -> None:
    """Breaks everything before tensorferry is imported, and converts."""
    for fail in BREAKS.values():
        fail()

    from support.trips import go_everywhere, go_into_trees, go_sparse, states

    import tensorferry as ferry

    # The first trips run the probes of NumPy and PyTorch; the values of the others are compared
    # by functions that are whole again.
    there = ferry.to(np.ones(2, np.float32), "torch")
    ferry.to(there, "numpy")
    for one in undo:
        one()
    go_everywhere(NAMES)
    go_sparse(["torch", "jax"])
    go_into_trees()
    print(json.dumps(states()))


if __name__ == "__main__":
    main()
