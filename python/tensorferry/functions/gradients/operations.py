"""The caller's side of a gradient: one operation in the caller's automatic differentiation.

PyTorch is told which tensors the two sides share, so that writing one of them in place before
`backward` raises, as it does for PyTorch's own operations. JAX keeps no values of other frameworks
between the two passes, so the body runs again in the backward pass. Under `jit` and `vmap` it runs
in callbacks, which come by the host, and what its results look like is found out by running it
once without values. TensorFlow takes part while it is eager. None of them gets second derivatives.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tensorferry._native import UnsupportedDTypeError, plan, to
from tensorferry.functions.callables import refuse
from tensorferry.functions.gradients.call import Crossing
from tensorferry.functions.gradients.vjp import forms, is_smooth, unpacked
from tensorferry.functions.origins import is_traced


def _from_torch(crossing: Crossing) -> Any:
    torch = importlib.import_module("torch")
    leaves = crossing.leaves
    wanted = [n for n in crossing.mine() if leaves[n].requires_grad]
    if not wanted or not torch.is_grad_enabled():
        return crossing.plain()
    results = _torch_operation().apply(crossing, wanted, *[leaves[n] for n in wanted])
    return crossing.whole(results)


@cache
def _torch_operation() -> Any:
    torch = importlib.import_module("torch")

    class Once(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """The backward pass: an operation as well, so that a second derivative is not lost."""

        @staticmethod
        def forward(context: Any, pulled: Callable[[], Any], *_inputs: Any) -> Any:
            return pulled()

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            return _no_second()

    class Border(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(context: Any, crossing: Crossing, wanted: list[int], *inputs: Any) -> Any:
            ran = crossing.run(crossing.filled(wanted, inputs), wanted, home="torch")
            results = crossing.back(ran.results, inputs[0])
            context.pull, context.wanted = ran.pull, wanted
            context.set_materialize_grads(False)
            context.mark_non_differentiable(*[x for x in results if not is_smooth("torch", x)])
            context.save_for_backward(*inputs, *results)
            return tuple(results)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            # Asking for them is also what makes PyTorch compare versions.
            inputs = context.saved_tensors[: len(context.wanted)]

            def pulled() -> Any:
                found = context.pull(list(gradients))
                return tuple(found[n] for n in context.wanted)

            return (None, None, *Once.apply(pulled, *inputs, *gradients))

    return Border


def _from_tensorflow(crossing: Crossing) -> Any:
    tensorflow = importlib.import_module("tensorflow")
    if any(map(is_traced, crossing.leaves)):
        return crossing.plain()
    # A variable is read here, where the caller's tape sees it.
    mine = crossing.mine()
    read = [tensorflow.convert_to_tensor(crossing.leaves[n]) for n in mine]
    leaves = crossing.leaves = crossing.filled(mine, read)
    wanted = [n for n in mine if is_smooth("tensorflow", leaves[n])]

    @tensorflow.custom_gradient  # type: ignore[untyped-decorator]
    def operation(*_inputs: Any) -> Any:
        ran = crossing.run(leaves, wanted, home="tensorflow")
        results = crossing.back(ran.results, read[0])

        @tensorflow.custom_gradient  # type: ignore[untyped-decorator]
        def once(*inputs: Any) -> Any:
            upstream = inputs[: len(results)]
            found = ran.pull([g if is_smooth("tensorflow", g) else None for g in upstream])
            zeros = tensorflow.zeros_like
            return [zeros(leaves[n]) if found[n] is None else found[n] for n in wanted], _no_second

        def gradient(*upstream: Any) -> Any:
            # The leaves are inputs, so that a second derivative comes by here and is not zero.
            return once(*upstream, *[leaves[n] for n in wanted])

        return results, gradient

    return crossing.whole(operation(*[leaves[n] for n in wanted]))


def _no_second(*_gradients: Any) -> Any:
    refuse(
        "a function with grad=True has no second derivative",
        "differentiate it once, or write the body in the caller's framework",
    )


def _from_jax(crossing: Crossing) -> Any:
    if not any(map(is_traced, crossing.leaves)):
        return crossing.plain()
    jax = importlib.import_module("jax")
    mine = crossing.mine()
    wanted = [n for n in mine if is_smooth("jax", crossing.leaves[n])]

    def forward(*arrays: Any) -> tuple[Any, ...]:
        if not any(map(is_traced, arrays)):
            leaves = crossing.filled(mine, _as_arrays(jax, arrays))
            results = crossing.run(leaves, (), home="jax").results
            return tuple(crossing.back(results, leaves[mine[0]]))
        leaves = crossing.filled(mine, arrays)
        found, crossing.rebuild = forms(
            crossing.framework, crossing.call, [_formed(crossing, x) for x in leaves]
        )

        def host(*values: Any) -> tuple[Any, ...]:
            there = [crossing.inside(x) for x in crossing.filled(mine, values)]
            results, _ = unpacked(crossing.framework, crossing.call(there))
            return tuple(to(x.detach() if hasattr(x, "detach") else x, "numpy") for x in results)

        shapes = tuple(_struct(jax, *form) for form in found)
        return tuple(jax.pure_callback(host, shapes, *arrays, vmap_method="sequential"))

    def backward(arrays: tuple[Any, ...], upstream: tuple[Any, ...]) -> tuple[Any, ...]:
        upstream = _as_arrays(jax, upstream)
        smooth = [n for n, g in enumerate(upstream) if g.dtype != jax.dtypes.float0]
        given = [upstream[n] for n in smooth]

        def pulled(home: str, values: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
            by_number = dict(zip(smooth, gradients, strict=True))
            ran = crossing.run(crossing.filled(mine, values), wanted, home=home)
            return ran.pull([by_number.get(n) for n in range(len(upstream))])

        def host(values: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
            found = pulled("numpy", values, gradients)
            zeros = importlib.import_module("numpy").zeros_like
            by_number = dict(zip(mine, values, strict=True))
            return [zeros(by_number[n]) if found[n] is None else found[n] for n in wanted]

        if not any(map(is_traced, (*arrays, *given))):
            found = pulled("jax", _as_arrays(jax, arrays), given)
            return tuple(found[n] for n in mine)
        like = dict(zip(mine, arrays, strict=True))
        shapes = [_struct(jax, like[n].shape, like[n].dtype.name) for n in wanted]
        made = jax.pure_callback(host, shapes, arrays, given, vmap_method="sequential")
        by_number = dict(zip(wanted, made, strict=True))
        return tuple(by_number.get(n) for n in mine)

    operation = jax.custom_vjp(forward)
    operation.defvjp(lambda *arrays: (forward(*arrays), arrays), backward)
    return crossing.whole(operation(*[crossing.leaves[n] for n in mine]))


def _as_arrays(jax: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays, also of numbers, which JAX hands on as it was given them; float0 stays."""
    return tuple(
        x
        if isinstance(x, jax.Array) or getattr(x, "dtype", None) == jax.dtypes.float0
        else jax.numpy.asarray(x)
        for x in values
    )


def _formed(crossing: Crossing, x: Any) -> Any:
    """What the body will see: for a traced array its shape and type, anything else as it is."""
    if not is_traced(x):
        return crossing.inside(x)
    empty = importlib.import_module("numpy").empty((), x.dtype)
    return tuple(x.shape), plan(empty, crossing.framework, **crossing.wishes).dtype


def _struct(jax: Any, shape: Any, dtype: str) -> Any:
    if jax.dtypes.canonicalize_dtype(dtype).name != dtype:
        raise UnsupportedDTypeError(
            f"the body gives {dtype}, which JAX lacks while jax_enable_x64 is off"
            "\nhint: give float32, int32 or complex64, or set JAX_ENABLE_X64=1"
        )
    return jax.ShapeDtypeStruct(shape, dtype)


CALLERS: dict[str, Callable[[Crossing], Any]] = {
    "torch": _from_torch,
    "jax": _from_jax,
    "tensorflow": _from_tensorflow,
}
