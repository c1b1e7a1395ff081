"""One call across the border, by a caller of one framework to a body of another."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tensorferry._native import plan, to
from tensorferry.functions.callables import refuse
from tensorferry.functions.gradients.vjp import Pull, Ran, conjugated, has_gradients, is_smooth, run
from tensorferry.functions.origins import first_home, framework_of, is_sparse, is_traced
from tensorferry.functions.trees import Rebuild


class Crossing:
    """The tensors of a call, and how the body is called with others in their place."""

    def __init__(
        self, framework: str, wishes: dict[str, Any], call: Callable[..., Any], leaves: list[Any]
    ) -> None:
        self.framework = framework
        self.wishes = wishes
        self.call = call
        self.leaves = leaves
        # Sparse tensors are carried like any other, and take no part.
        self.whose = [None if is_sparse(x) else framework_of(x) for x in leaves]
        self.caller = next((name for name in self.whose if has_gradients(name)), None)
        #: How the last run's result is made of its tensors.
        self.rebuild: Rebuild | None = None

    def mine(self) -> list[int]:
        """Which leaves are of the caller's framework."""
        return [n for n, name in enumerate(self.whose) if name == self.caller]

    def filled(self, numbers: Sequence[int], values: Sequence[Any]) -> list[Any]:
        """The leaves, with others in the place of some."""
        new = list(self.leaves)
        for number, value in zip(numbers, values, strict=True):
            new[number] = value
        return new

    def refuse_others(self) -> None:
        """A gradient that would be lost without a word is worth an error."""
        for x, name in zip(self.leaves, self.whose, strict=True):
            if name is None:
                if self.framework != "torch" and _asks_for_gradient(x):
                    refuse(
                        "a sparse tensor that requires grad cannot take it across",
                        "detach it, or pass its values and make the sparse tensor in the body",
                    )
            elif name == self.caller:
                continue
            elif is_traced(x) and name != self.framework:
                refuse(
                    f"a value that {name} is tracing came behind tensors of {self.caller}",
                    f"pass tensors of {name} alone, or pass its own first",
                )
            elif name == "torch" and _asks_for_gradient(x):
                refuse(
                    f"a torch tensor that requires grad came with tensors of {self.caller}",
                    "pass tensors of one framework, or detach it",
                )

    def plain(self) -> Any:
        """Calls without gradients, but for those that a framework gives its own tensors."""
        # A traced value is for bodies of its own framework; of others, the trip says why not.
        whose = zip(self.leaves, self.whose, strict=True)
        own = [
            x if name == self.framework and is_traced(x) else self.inside(x) for x, name in whose
        ]
        result = self.call(own)
        home = first_home(self.leaves)
        if home is None or self.caller == self.framework:
            return result
        device = None if home.framework == "numpy" else home.device
        return to((result,), home.framework, device=device)[0]

    def inside(self, x: Any) -> Any:
        """A tensor as the body sees it."""
        return to(x, self.framework, **self.wishes)

    def run(self, leaves: list[Any], wanted: Sequence[int], *, home: str) -> Ran:
        """Runs the body; gradients come, and go to the framework `home`, as the caller has them."""
        there = list(to(tuple(leaves), self.framework, **self.wishes))
        wanted = [n for n in wanted if is_smooth(self.framework, there[n])]
        ran = run(self.framework, self.call, there, wanted)
        self.rebuild = ran.rebuild
        return ran._replace(pull=self._pull(ran, leaves, wanted, home))

    def _pull(self, ran: Ran, leaves: list[Any], wanted: Sequence[int], home: str) -> Pull:
        framework = self.framework
        differs = "jax" in (self.caller, framework)
        results = [plan(x, framework) for x in ran.results]
        places = {n: plan(leaves[n], home) for n in wanted}
        count = len(leaves)

        def pull(gradients: list[Any]) -> list[Any]:
            given: list[Any] = [None] * len(results)
            for n, (gradient, told) in enumerate(zip(gradients, results, strict=True)):
                if gradient is not None:
                    there = to(
                        gradient, framework, dtype=told.source_dtype, device=told.source_device
                    )
                    given[n] = conjugated(framework, there) if differs else there
            found: list[Any] = [None] * count
            for n, gradient in zip(wanted, ran.pull(given), strict=True):
                if gradient is not None:
                    there = conjugated(framework, gradient) if differs else gradient
                    device = None if home == "numpy" else places[n].source_device
                    found[n] = to(there, home, dtype=places[n].source_dtype, device=device)
            return found

        return pull

    def back(self, results: Sequence[Any], like: Any) -> list[Any]:
        """Results in the caller's framework, beside one of its tensors."""
        assert self.caller is not None
        device = plan(like, self.caller).source_device
        return list(to(tuple(results), self.caller, device=device))

    def whole(self, results: Sequence[Any]) -> Any:
        """The result, made of tensors."""
        assert self.rebuild is not None
        return self.rebuild(results)


def _asks_for_gradient(x: Any) -> bool:
    """Whether PyTorch would differentiate by it."""
    return bool(getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled())
