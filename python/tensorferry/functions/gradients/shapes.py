"""Shapes and types of a function's results, inferred without values.

JAX needs them under `jit` and `vmap`, where the function runs in a callback. PyTorch infers them
with fake tensors, or with its meta device if that fast path is off; TensorFlow with a graph.
"""

import functools
import importlib
import importlib.util
from typing import Any

from tensorferry._native import (
    FrameworkNotFoundError,
    InvalidArgumentError,
    _check_import,
    _fast_path_enabled,
    _fast_path_probed,
    to,
)
from tensorferry.functions.gradients.vjp import Function, flatten_result
from tensorferry.functions.trees import Rebuild

ShapeAndType = tuple[tuple[int, ...], str]

# Python exceptions that frameworks raise if a function needs a value that is not there yet.
_MISSING_VALUE_ERRORS = (AttributeError, NotImplementedError, RuntimeError)


def infer_results(
    framework: str, function: Function, leaves: list[Any]
) -> tuple[list[ShapeAndType], Rebuild]:
    """Shapes and types of the results, for leaves of which some are only (shape, dtype)."""
    try:
        return _INFER[framework](function, leaves)
    except InvalidArgumentError:
        raise
    except Exception as error:
        # Other errors are raised by the function itself.
        is_framework_error = type(error).__module__.partition(".")[0] == framework
        if not is_framework_error and not isinstance(error, _MISSING_VALUE_ERRORS):
            raise
        raise InvalidArgumentError(
            f"the shapes of the results cannot be inferred without values: {error}"
            "\nhint: call it outside jit and vmap, or avoid shapes that depend on values"
        ) from error


def _fake_tensor_mode() -> Any:
    """The mode in which PyTorch computes shapes and types only; None if it is off."""
    if not _fake_tensors_work():
        return None
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    return fake.FakeTensorMode(allow_non_fake_inputs=True)


@functools.cache
def _fake_tensors_work() -> bool:
    """Whether PyTorch's private mode infers the shape and type of a matrix product."""
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


def _infer_torch(function: Function, leaves: list[Any]) -> tuple[list[ShapeAndType], Rebuild]:
    torch = importlib.import_module("torch")
    if importlib.util.find_spec("triton") is not None:
        try:
            _check_import("triton")
        except FrameworkNotFoundError as error:
            fact = str(error).partition("\n")[0]
            raise InvalidArgumentError(
                f"PyTorch imports Triton to infer the shapes of the results, and {fact}"
                "\nhint: import triton before tensorflow, or call it outside jit and vmap"
            ) from error
    fake = _fake_tensor_mode()
    # Meta tensors do not mix with others: a function that uses its own tensors is refused.
    with fake or torch.device("meta"), torch.no_grad():
        given = [
            torch.empty(x[0], dtype=getattr(torch, x[1])) if isinstance(x, tuple) else x
            for x in leaves
        ]
        if fake is None:
            given = [x.to("meta") for x in given]
        results, rebuild = flatten_result("torch", function(given))
    return [(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in results], rebuild


def _infer_tensorflow(function: Function, leaves: list[Any]) -> tuple[list[ShapeAndType], Rebuild]:
    tensorflow = importlib.import_module("tensorflow")
    with tensorflow.Graph().as_default():
        given = [
            tensorflow.compat.v1.placeholder(x[1], x[0])
            if isinstance(x, tuple)
            else tensorflow.constant(to(x, "numpy"))
            for x in leaves
        ]
        results, rebuild = flatten_result("tensorflow", function(given))
    return [(tuple(x.shape.as_list()), x.dtype.name) for x in results], rebuild


_INFER = {"torch": _infer_torch, "tensorflow": _infer_tensorflow}
