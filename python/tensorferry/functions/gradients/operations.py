"""The operation that a caller's automatic differentiation sees, for each framework.

- PyTorch is told which tensors the caller and the function share, so that writing to one of them in
  place before `backward` raises, as it does for PyTorch's own operations.
- JAX keeps no values of other frameworks between the two passes, so the function runs again in the
  backward pass. Under `jit` and `vmap` it runs in callbacks, through host memory, and the shapes of
  its results are inferred without values.
- TensorFlow is supported while it is eager.

Second derivatives are not supported.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tensorferry._native import UnsupportedDTypeError, plan, to
from tensorferry.functions.callables import refuse
from tensorferry.functions.gradients.call import DifferentiableCall
from tensorferry.functions.gradients.shapes import infer_results
from tensorferry.functions.gradients.vjp import flatten_result, is_differentiable
from tensorferry.functions.origins import is_traced


def _from_torch(call: DifferentiableCall) -> Any:
    torch = importlib.import_module("torch")
    leaves = call.leaves
    wanted = [n for n in call.caller_indices() if leaves[n].requires_grad]
    if not wanted or not torch.is_grad_enabled():
        return call.without_gradients()
    results = _torch_operation().apply(call, wanted, *[leaves[n] for n in wanted])
    return call.rebuild_result(results)


@cache
def _torch_operation() -> Any:
    torch = importlib.import_module("torch")

    class Backward(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """The backward pass: an operation too, so that a second derivative raises."""

        @staticmethod
        def forward(context: Any, run_vjp: Callable[[], Any], *_inputs: Any) -> Any:
            return run_vjp()

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            return _refuse_second_derivative()

    class Operation(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(context: Any, call: DifferentiableCall, wanted: list[int], *inputs: Any) -> Any:
            forward_pass = call.run(call.replace(wanted, inputs), wanted, gradients_to="torch")
            results = call.convert_results(forward_pass.results, inputs[0])
            context.run_vjp, context.wanted = forward_pass.vjp, wanted
            context.set_materialize_grads(False)
            context.mark_non_differentiable(
                *[x for x in results if not is_differentiable("torch", x)]
            )
            context.save_for_backward(*inputs, *results)
            return tuple(results)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            # Reading saved_tensors makes PyTorch compare their versions.
            inputs = context.saved_tensors[: len(context.wanted)]

            def run_vjp() -> Any:
                found = context.run_vjp(list(gradients))
                return tuple(found[n] for n in context.wanted)

            return (None, None, *Backward.apply(run_vjp, *inputs, *gradients))

    return Operation


def _from_tensorflow(call: DifferentiableCall) -> Any:
    tensorflow = importlib.import_module("tensorflow")
    if any(map(is_traced, call.leaves)):
        return call.without_gradients()
    # A variable is read here, where the caller's tape sees it.
    own = call.caller_indices()
    read = [tensorflow.convert_to_tensor(call.leaves[n]) for n in own]
    leaves = call.leaves = call.replace(own, read)
    wanted = [n for n in own if is_differentiable("tensorflow", leaves[n])]

    @tensorflow.custom_gradient  # type: ignore[untyped-decorator]
    def operation(*_inputs: Any) -> Any:
        forward_pass = call.run(leaves, wanted, gradients_to="tensorflow")
        results = call.convert_results(forward_pass.results, read[0])

        @tensorflow.custom_gradient  # type: ignore[untyped-decorator]
        def backward(*inputs: Any) -> Any:
            upstream = inputs[: len(results)]
            found = forward_pass.vjp(
                [g if is_differentiable("tensorflow", g) else None for g in upstream]
            )
            zeros = tensorflow.zeros_like
            return [
                zeros(leaves[n]) if found[n] is None else found[n] for n in wanted
            ], _refuse_second_derivative

        def gradient(*upstream: Any) -> Any:
            # The leaves are inputs, so that a second derivative reaches `backward` and is not zero.
            return backward(*upstream, *[leaves[n] for n in wanted])

        return results, gradient

    return call.rebuild_result(operation(*[leaves[n] for n in wanted]))


def _refuse_second_derivative(*_gradients: Any) -> Any:
    refuse(
        "a function with grad=True has no second derivative",
        "differentiate it once, or write the function in the caller's framework",
    )


def _from_jax(call: DifferentiableCall) -> Any:
    if not any(map(is_traced, call.leaves)):
        return call.without_gradients()
    jax = importlib.import_module("jax")
    own = call.caller_indices()
    wanted = [n for n in own if is_differentiable("jax", call.leaves[n])]

    def forward(*arrays: Any) -> tuple[Any, ...]:
        if not any(map(is_traced, arrays)):
            leaves = call.replace(own, _as_arrays(jax, arrays))
            results = call.run(leaves, (), gradients_to="jax").results
            return tuple(call.convert_results(results, leaves[own[0]]))
        leaves = call.replace(own, arrays)
        found, call.rebuild = infer_results(
            call.framework, call.function, [_argument_shape(call, x) for x in leaves]
        )

        def host(*values: Any) -> tuple[Any, ...]:
            converted = [call.convert(x) for x in call.replace(own, values)]
            results, _ = flatten_result(call.framework, call.function(converted))
            return tuple(to(x.detach() if hasattr(x, "detach") else x, "numpy") for x in results)

        shapes = tuple(_shape_struct(jax, *one) for one in found)
        return tuple(jax.pure_callback(host, shapes, *arrays, vmap_method="sequential"))

    def backward(arrays: tuple[Any, ...], upstream: tuple[Any, ...]) -> tuple[Any, ...]:
        upstream = _as_arrays(jax, upstream)
        differentiable = [n for n, g in enumerate(upstream) if g.dtype != jax.dtypes.float0]
        given = [upstream[n] for n in differentiable]

        def run_vjp(
            gradients_to: str, values: Sequence[Any], gradients: Sequence[Any]
        ) -> list[Any]:
            by_index = dict(zip(differentiable, gradients, strict=True))
            forward_pass = call.run(call.replace(own, values), wanted, gradients_to=gradients_to)
            return forward_pass.vjp([by_index.get(n) for n in range(len(upstream))])

        def host(values: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
            found = run_vjp("numpy", values, gradients)
            zeros = importlib.import_module("numpy").zeros_like
            by_index = dict(zip(own, values, strict=True))
            return [zeros(by_index[n]) if found[n] is None else found[n] for n in wanted]

        if not any(map(is_traced, (*arrays, *given))):
            found = run_vjp("jax", _as_arrays(jax, arrays), given)
            return tuple(found[n] for n in own)
        like = dict(zip(own, arrays, strict=True))
        shapes = [_shape_struct(jax, like[n].shape, like[n].dtype.name) for n in wanted]
        made = jax.pure_callback(host, shapes, arrays, given, vmap_method="sequential")
        by_index = dict(zip(wanted, made, strict=True))
        return tuple(by_index.get(n) for n in own)

    operation = jax.custom_vjp(forward)
    operation.defvjp(lambda *arrays: (forward(*arrays), arrays), backward)
    return call.rebuild_result(operation(*[call.leaves[n] for n in own]))


def _as_arrays(jax: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays; JAX passes Python numbers through unchanged. float0 arrays stay unchanged."""
    return tuple(
        x
        if isinstance(x, jax.Array) or getattr(x, "dtype", None) == jax.dtypes.float0
        else jax.numpy.asarray(x)
        for x in values
    )


def _argument_shape(call: DifferentiableCall, x: Any) -> Any:
    """The shape and type of a traced array as the function sees it; other values converted."""
    if not is_traced(x):
        return call.convert(x)
    empty = importlib.import_module("numpy").empty((), x.dtype)
    return tuple(x.shape), plan(empty, call.framework, **call.options).dtype


def _shape_struct(jax: Any, shape: Any, dtype: str) -> Any:
    if jax.dtypes.canonicalize_dtype(dtype).name != dtype:
        raise UnsupportedDTypeError(
            f"the function returns {dtype}, which JAX does not support while jax_enable_x64 is off"
            "\nhint: return float32, int32 or complex64, or set JAX_ENABLE_X64=1"
        )
    return jax.ShapeDtypeStruct(shape, dtype)


OPERATIONS: dict[str, Callable[[DifferentiableCall], Any]] = {
    "torch": _from_torch,
    "jax": _from_jax,
    "tensorflow": _from_tensorflow,
}
