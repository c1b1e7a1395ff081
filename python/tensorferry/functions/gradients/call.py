"""One call of a function in one framework by a caller in another, with gradients."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tensorferry._native import FerryError, plan, to
from tensorferry.functions.callables import refuse
from tensorferry.functions.gradients.vjp import (
    ForwardResult,
    VectorJacobianProduct,
    conjugate,
    has_gradients,
    is_differentiable,
    replace_leaves,
    run_forward,
)
from tensorferry.functions.origins import first_origin, framework_of, is_sparse, is_traced
from tensorferry.functions.result_errors import refuse_result
from tensorferry.functions.trees import Rebuild


class DifferentiableCall:
    """The tensors of a call, and how to call the function with others instead."""

    def __init__(
        self,
        name: str,
        framework: str,
        options: dict[str, Any],
        function: Callable[..., Any],
        leaves: list[Any],
    ) -> None:
        self.name = name
        self.framework = framework
        self.options = options
        self.function = function
        self.leaves = leaves
        # Sparse tensors are converted like others, and are not differentiated.
        self.frameworks = [None if is_sparse(x) else framework_of(x) for x in leaves]
        self.caller = next((name for name in self.frameworks if has_gradients(name)), None)
        #: Rebuilds the result of the last run from its tensors.
        self.rebuild: Rebuild | None = None

    def caller_indices(self) -> list[int]:
        """The indices of the leaves of the caller's framework."""
        return [n for n, name in enumerate(self.frameworks) if name == self.caller]

    def replace(self, indices: Sequence[int], values: Sequence[Any]) -> list[Any]:
        """The leaves, of which some are replaced."""
        return replace_leaves(self.leaves, indices, values)

    def check_arguments(self) -> None:
        """Refuses arguments whose gradient would be lost silently."""
        for x, name in zip(self.leaves, self.frameworks, strict=True):
            if name is None:
                if self.framework != "torch" and _requires_gradient(x):
                    refuse(
                        f"{self.framework} gives no gradient for a sparse torch tensor",
                        "detach it, or pass its values and make the sparse tensor in the function",
                    )
            elif name == self.caller:
                continue
            elif is_traced(x) and name != self.framework:
                refuse(
                    f"a value that {name} traces was passed after tensors of {self.caller}",
                    f"pass tensors of {name} only, or pass its tensors first",
                )
            elif name == "torch" and _requires_gradient(x):
                refuse(
                    f"a torch tensor that requires grad was passed with tensors of {self.caller}",
                    "pass tensors of one framework, or detach it",
                )

    def without_gradients(self) -> Any:
        """Calls the function; a framework still differentiates its own tensors."""
        # Traced values are passed to functions of their own framework; others refuse them.
        pairs = zip(self.leaves, self.frameworks, strict=True)
        arguments = [
            x if name == self.framework and is_traced(x) else self.convert(x) for x, name in pairs
        ]
        result = self.function(arguments)
        origin = first_origin(self.leaves)
        if origin is None or self.caller == self.framework:
            return result
        device = None if origin.framework == "numpy" else origin.device
        # A parameter of the function makes its result require a gradient, which nobody asked for.
        with _gradients_off():
            return self._to_caller((result,), origin.framework, device)[0]

    def convert(self, x: Any) -> Any:
        """A tensor as the function sees it."""
        return to(x, self.framework, **self.options)

    def run(self, leaves: list[Any], wanted: Sequence[int], *, gradients_to: str) -> ForwardResult:
        """Runs the function; the vector-Jacobian product accepts gradients of the caller.

        Its results are tensors of the framework `gradients_to`.
        """
        converted = list(to(tuple(leaves), self.framework, **self.options))
        wanted = [n for n in wanted if is_differentiable(self.framework, converted[n])]
        forward = run_forward(self.framework, self.function, converted, wanted)
        self.rebuild = forward.rebuild
        return forward._replace(vjp=self._converting_vjp(forward, leaves, wanted, gradients_to))

    def _converting_vjp(
        self, forward: ForwardResult, leaves: list[Any], wanted: Sequence[int], gradients_to: str
    ) -> VectorJacobianProduct:
        framework = self.framework
        conjugates = "jax" in (self.caller, framework)
        results = [plan(x, framework) for x in forward.results]
        inputs = {n: plan(leaves[n], gradients_to) for n in wanted}
        count = len(leaves)

        def vjp(gradients: list[Any]) -> list[Any]:
            given: list[Any] = [None] * len(results)
            for n, (gradient, result) in enumerate(zip(gradients, results, strict=True)):
                if gradient is not None:
                    converted = to(
                        gradient, framework, dtype=result.source_dtype, device=result.source_device
                    )
                    given[n] = conjugate(framework, converted) if conjugates else converted
            found: list[Any] = [None] * count
            for n, gradient in zip(wanted, forward.vjp(given), strict=True):
                if gradient is not None:
                    gradient = conjugate(framework, gradient) if conjugates else gradient
                    device = None if gradients_to == "numpy" else inputs[n].source_device
                    found[n] = to(
                        gradient, gradients_to, dtype=inputs[n].source_dtype, device=device
                    )
            return found

        return vjp

    def convert_results(self, results: Sequence[Any], like: Any) -> list[Any]:
        """Results in the caller's framework, on the device of one of its tensors."""
        assert self.caller is not None
        device = plan(like, self.caller).source_device
        return list(self._to_caller(tuple(results), self.caller, device))

    def _to_caller(self, results: tuple[Any, ...], framework: str, device: Any) -> Any:
        try:
            return to(results, framework, device=device)
        except FerryError as error:
            refuse_result(error, self.name)

    def rebuild_result(self, results: Sequence[Any]) -> Any:
        """The result of the last run, rebuilt from tensors."""
        assert self.rebuild is not None
        return self.rebuild(results)


def _gradients_off() -> AbstractContextManager[Any]:
    torch: Any = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


def _requires_gradient(x: Any) -> bool:
    """Whether PyTorch would differentiate with respect to a tensor."""
    return bool(getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled())
