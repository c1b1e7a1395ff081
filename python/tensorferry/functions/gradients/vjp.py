"""The body's side of a gradient: run a function, and get its vector-Jacobian product.

One function for each framework that has such a thing, the same in each: it is given a call, the
tensors to call it with and which of them shall have gradients. It gives the result's tensors and
how the result is made of them, and a function from gradients of the former to gradients of the
latter, in which None is a gradient that is zero.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorferry._native import (
    FrameworkNotFoundError,
    InvalidArgumentError,
    _check_import,
    _fast_path_enabled,
    _fast_path_probed,
    to,
)
from tensorferry.functions.origins import framework_of
from tensorferry.functions.trees import Rebuild, flatten

Call = Callable[[list[Any]], Any]
Pull = Callable[[list[Any]], list[Any]]


class Ran(NamedTuple):
    """What a run gave."""

    results: list[Any]
    rebuild: Rebuild
    pull: Pull


def run(framework: str, call: Call, leaves: list[Any], wanted: Sequence[int]) -> Ran:
    """Calls with the leaves, and remembers what the gradients of some of them need."""
    return _RUNS[framework](call, leaves, wanted)


def has_gradients(framework: str | None) -> bool:
    """Whether gradients can cross from and to a framework."""
    return framework in _RUNS


def is_smooth(framework: str, x: Any) -> bool:
    """Whether a tensor can have a gradient: its type is real or complex, not an integer or bool."""
    if framework == "jax":
        jax = importlib.import_module("jax")
        return bool(jax.numpy.issubdtype(x.dtype, jax.numpy.inexact))
    if framework == "torch":
        return bool(x.is_floating_point() or x.is_complex())
    return bool(x.dtype.is_floating or x.dtype.is_complex)


def conjugated(framework: str, x: Any) -> Any:
    """The conjugate of a complex gradient: JAX has the one where the others have the other."""
    if x is None:
        return None
    module = importlib.import_module(framework)
    if framework == "jax":
        return x.conj() if module.numpy.iscomplexobj(x) else x
    if framework == "torch":
        return x.conj() if x.is_complex() else x
    return module.math.conj(x) if x.dtype.is_complex else x


def unpacked(framework: str, result: Any) -> tuple[list[Any], Rebuild]:
    """The tensors of a result; what the body took from other frameworks becomes its own."""
    module = importlib.import_module(framework)
    kind = module.Array if framework == "jax" else module.Tensor
    found, rebuild = flatten(result, lambda x: isinstance(x, kind) or framework_of(x) is not None)
    return [x if isinstance(x, kind) else to(x, framework) for x in found], rebuild


def _filled(leaves: list[Any], wanted: Sequence[int], values: Sequence[Any]) -> list[Any]:
    new = list(leaves)
    for number, value in zip(wanted, values, strict=True):
        new[number] = value
    return new


def _run_jax(call: Call, leaves: list[Any], wanted: Sequence[int]) -> Ran:
    jax = importlib.import_module("jax")
    smooth: list[int] = []
    shape: list[Rebuild] = []
    count = 0

    def body(*values: Any) -> tuple[list[Any], list[Any]]:
        nonlocal count
        results, rebuild = unpacked("jax", call(_filled(leaves, wanted, values)))
        count = len(results)
        shape.append(rebuild)
        smooth.extend(n for n, x in enumerate(results) if is_smooth("jax", x))
        return [results[n] for n in smooth], [x for n, x in enumerate(results) if n not in smooth]

    moving, vjp, still = jax.vjp(body, *[leaves[n] for n in wanted], has_aux=True)
    rest = iter(still)
    values = dict(zip(smooth, moving, strict=True))
    results = [values[n] if n in values else next(rest) for n in range(count)]

    def pull(gradients: list[Any]) -> list[Any]:
        given = [gradients[n] for n in smooth]
        if all(g is None for g in given):
            return [None] * len(wanted)
        zeros = jax.numpy.zeros_like
        return list(vjp([zeros(x) if g is None else g for g, x in zip(given, moving, strict=True)]))

    return Ran(results, shape[-1], pull)


def _run_torch(call: Call, leaves: list[Any], wanted: Sequence[int]) -> Ran:
    torch = importlib.import_module("torch")
    variables = [leaves[n].detach().requires_grad_() for n in wanted]
    with torch.enable_grad():
        results, rebuild = unpacked("torch", call(_filled(leaves, wanted, variables)))
    moving = [n for n, x in enumerate(results) if x.requires_grad]

    def pull(gradients: list[Any]) -> list[Any]:
        given = [n for n in moving if gradients[n] is not None]
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

    return Ran([x.detach() for x in results], rebuild, pull)


def _run_tensorflow(call: Call, leaves: list[Any], wanted: Sequence[int]) -> Ran:
    tensorflow = importlib.import_module("tensorflow")
    variables = [tensorflow.identity(leaves[n]) for n in wanted]
    with tensorflow.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(variables)
        results, rebuild = unpacked("tensorflow", call(_filled(leaves, wanted, variables)))
    smooth = [n for n, x in enumerate(results) if is_smooth("tensorflow", x)]

    def pull(gradients: list[Any]) -> list[Any]:
        given = [n for n in smooth if gradients[n] is not None]
        if not given:
            return [None] * len(wanted)
        found = tape.gradient(
            [results[n] for n in given],
            variables,
            output_gradients=[gradients[n] for n in given],
        )
        # What a gather gives is a list of slices.
        return [None if g is None else tensorflow.convert_to_tensor(g) for g in found]

    return Ran(results, rebuild, pull)


_RUNS: dict[str, Callable[[Call, list[Any], Sequence[int]], Ran]] = {
    "jax": _run_jax,
    "torch": _run_torch,
    "tensorflow": _run_tensorflow,
}


# What a result will look like, for those who must know before there are values.

Form = tuple[tuple[int, ...], str]
# What frameworks raise, of Python's own, when they are asked for values that there are not yet.
_WITHOUT_VALUES = (AttributeError, NotImplementedError, RuntimeError)


def forms(framework: str, call: Call, leaves: list[Any]) -> tuple[list[Form], Rebuild]:
    """Shapes and types of the results, for leaves of which some are only (shape, dtype)."""
    try:
        return _FORMS[framework](call, leaves)
    except InvalidArgumentError:
        raise
    except Exception as error:
        # What no value without memory would raise is the body's own error.
        is_theirs = type(error).__module__.partition(".")[0] == framework
        if not is_theirs and not isinstance(error, _WITHOUT_VALUES):
            raise
        raise InvalidArgumentError(
            f"the shapes of the results are not known before there are values: {error}"
            "\nhint: call it outside jit and vmap, or have no shapes that depend on values"
        ) from error


def _fake_mode() -> Any:
    """A mode in which PyTorch computes shapes and types only; None where it is off."""
    if not _fakes():
        return None
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    return fake.FakeTensorMode(allow_non_fake_inputs=True)


@functools.cache
def _fakes() -> bool:
    """Whether the private mode gives a product of two tensors its shape and type."""
    if not _fast_path_enabled("torch.fake_tensor"):
        return False
    torch = importlib.import_module("torch")
    reason = None
    try:
        fake = importlib.import_module("torch._subclasses.fake_tensor")
        with fake.FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            made = torch.zeros((2, 3), dtype=torch.int8) @ torch.zeros((3, 4), dtype=torch.int8)
        if (tuple(made.shape), made.dtype) != ((2, 4), torch.int8):
            reason = f"a product of int8 is {made.dtype} of shape {tuple(made.shape)}"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    _fast_path_probed("torch.fake_tensor", reason)
    return reason is None


def _forms_torch(call: Call, leaves: list[Any]) -> tuple[list[Form], Rebuild]:
    torch = importlib.import_module("torch")
    if importlib.util.find_spec("triton") is not None:
        try:
            _check_import("triton")
        except FrameworkNotFoundError as error:
            fact = str(error).partition("\n")[0]
            raise InvalidArgumentError(
                f"PyTorch loads Triton to find out what the results look like, and {fact}"
                "\nhint: import triton before tensorflow, or call it outside jit and vmap"
            ) from error
    fake = _fake_mode()
    # Tensors on the meta device do not mix with others: a function that brings its own is refused.
    with fake or torch.device("meta"), torch.no_grad():
        given = [
            torch.empty(x[0], dtype=getattr(torch, x[1])) if isinstance(x, tuple) else x
            for x in leaves
        ]
        if fake is None:
            given = [x.to("meta") for x in given]
        results, rebuild = unpacked("torch", call(given))
    return [(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in results], rebuild


def _forms_tensorflow(call: Call, leaves: list[Any]) -> tuple[list[Form], Rebuild]:
    tensorflow = importlib.import_module("tensorflow")
    with tensorflow.Graph().as_default():
        given = [
            tensorflow.compat.v1.placeholder(x[1], x[0])
            if isinstance(x, tuple)
            else tensorflow.constant(to(x, "numpy"))
            for x in leaves
        ]
        results, rebuild = unpacked("tensorflow", call(given))
    return [(tuple(x.shape.as_list()), x.dtype.name) for x in results], rebuild


_FORMS = {"torch": _forms_torch, "tensorflow": _forms_tensorflow}
