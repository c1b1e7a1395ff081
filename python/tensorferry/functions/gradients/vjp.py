"""Vector-Jacobian products of a function in its own framework.

Each framework has one implementation of the same interface. Its arguments are the function, the
tensors to call it with and the indices of those that need gradients. It returns the result's
tensors, a function that rebuilds the result from them, and the vector-Jacobian product: a function
from gradients of the results to gradients of the arguments, in which None is a zero gradient.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorferry._native import to
from tensorferry.functions.origins import framework_of
from tensorferry.functions.trees import Rebuild, flatten

Function = Callable[[list[Any]], Any]
VectorJacobianProduct = Callable[[list[Any]], list[Any]]


class ForwardResult(NamedTuple):
    """The results of a function, and its vector-Jacobian product."""

    results: list[Any]
    rebuild: Rebuild
    vjp: VectorJacobianProduct


def run_forward(
    framework: str, function: Function, leaves: list[Any], wanted: Sequence[int]
) -> ForwardResult:
    """Calls a function, and keeps what the gradients of the `wanted` leaves need."""
    return _FORWARD[framework](function, leaves, wanted)


def has_gradients(framework: str | None) -> bool:
    """Whether a framework has automatic differentiation that is supported here."""
    return framework in _FORWARD


def is_differentiable(framework: str, x: Any) -> bool:
    """Whether a tensor can have a gradient: its type is real or complex, not integer or bool."""
    if framework == "jax":
        jax = importlib.import_module("jax")
        return bool(jax.numpy.issubdtype(x.dtype, jax.numpy.inexact))
    if framework == "torch":
        return bool(x.is_floating_point() or x.is_complex())
    return bool(x.dtype.is_floating or x.dtype.is_complex)


def conjugate(framework: str, x: Any) -> Any:
    """The conjugate of a complex gradient; JAX's convention differs from the others'."""
    if x is None:
        return None
    module = importlib.import_module(framework)
    if framework == "jax":
        return x.conj() if module.numpy.iscomplexobj(x) else x
    if framework == "torch":
        return x.conj() if x.is_complex() else x
    return module.math.conj(x) if x.dtype.is_complex else x


def flatten_result(framework: str, result: Any) -> tuple[list[Any], Rebuild]:
    """The tensors of a result; those of other frameworks are converted."""
    module = importlib.import_module(framework)
    kind = module.Array if framework == "jax" else module.Tensor
    found, rebuild = flatten(result, lambda x: isinstance(x, kind) or framework_of(x) is not None)
    return [x if isinstance(x, kind) else to(x, framework) for x in found], rebuild


def replace_leaves(leaves: list[Any], indices: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """A copy of the leaves in which some are replaced."""
    new = list(leaves)
    for index, value in zip(indices, values, strict=True):
        new[index] = value
    return new


def _forward_jax(function: Function, leaves: list[Any], wanted: Sequence[int]) -> ForwardResult:
    jax = importlib.import_module("jax")
    differentiable: list[int] = []
    rebuilds: list[Rebuild] = []
    count = 0

    def split_results(*values: Any) -> tuple[list[Any], list[Any]]:
        nonlocal count
        results, rebuild = flatten_result("jax", function(replace_leaves(leaves, wanted, values)))
        count = len(results)
        rebuilds.append(rebuild)
        differentiable.extend(n for n, x in enumerate(results) if is_differentiable("jax", x))
        others = [x for n, x in enumerate(results) if n not in differentiable]
        return [results[n] for n in differentiable], others

    inputs = [leaves[n] for n in wanted]
    primals, jax_vjp, others = jax.vjp(split_results, *inputs, has_aux=True)
    rest = iter(others)
    values = dict(zip(differentiable, primals, strict=True))
    results = [values[n] if n in values else next(rest) for n in range(count)]

    def vjp(gradients: list[Any]) -> list[Any]:
        given = [gradients[n] for n in differentiable]
        if all(g is None for g in given):
            return [None] * len(wanted)
        zeros = jax.numpy.zeros_like
        cotangents = [zeros(x) if g is None else g for g, x in zip(given, primals, strict=True)]
        return list(jax_vjp(cotangents))

    return ForwardResult(results, rebuilds[-1], vjp)


def _forward_torch(function: Function, leaves: list[Any], wanted: Sequence[int]) -> ForwardResult:
    torch = importlib.import_module("torch")
    variables = [leaves[n].detach().requires_grad_() for n in wanted]
    with torch.enable_grad():
        results, rebuild = flatten_result(
            "torch", function(replace_leaves(leaves, wanted, variables))
        )
    differentiable = [n for n, x in enumerate(results) if x.requires_grad]

    def vjp(gradients: list[Any]) -> list[Any]:
        given = [n for n in differentiable if gradients[n] is not None]
        if not given:
            return [None] * len(wanted)
        found = torch.autograd.grad(
            [results[n] for n in given],
            variables,
            [gradients[n] for n in given],
            allow_unused=True,
            retain_graph=True,
        )
        return list(found)

    return ForwardResult([x.detach() for x in results], rebuild, vjp)


def _forward_tensorflow(
    function: Function, leaves: list[Any], wanted: Sequence[int]
) -> ForwardResult:
    tensorflow = importlib.import_module("tensorflow")
    variables = [tensorflow.identity(leaves[n]) for n in wanted]
    with tensorflow.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(variables)
        results, rebuild = flatten_result(
            "tensorflow", function(replace_leaves(leaves, wanted, variables))
        )
    differentiable = [n for n, x in enumerate(results) if is_differentiable("tensorflow", x)]

    def vjp(gradients: list[Any]) -> list[Any]:
        given = [n for n in differentiable if gradients[n] is not None]
        if not given:
            return [None] * len(wanted)
        found = tape.gradient(
            [results[n] for n in given],
            variables,
            output_gradients=[gradients[n] for n in given],
        )
        # The gradient of a gather is an IndexedSlices object.
        return [None if g is None else tensorflow.convert_to_tensor(g) for g in found]

    return ForwardResult(results, rebuild, vjp)


_FORWARD: dict[str, Callable[[Function, list[Any], Sequence[int]], ForwardResult]] = {
    "jax": _forward_jax,
    "torch": _forward_torch,
    "tensorflow": _forward_tensorflow,
}
