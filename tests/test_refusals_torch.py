"""PyTorch's tensors without plain memory are refused in words.

Some of these (jagged and fake tensors, torch.func, tracing) make PyTorch import Triton, which ends
a process that has loaded TensorFlow: they run in one program, each reported as a test.
"""

from __future__ import annotations

import json

import pytest
import torch
from programs.front.torch_wrappers import STORIES
from support import subprocesses
from support.refusals import refused, refused_everywhere

import tensorferry as ferry


def wrapper_without_storage() -> torch.Tensor:
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (2, 3), dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(cls, function, kinds, arguments=(), keywords=None):
            raise NotImplementedError(f"a wrapper without {function}")

    return Wrapper()


TORCH_FORMS = {
    "mkldnn": lambda: torch.ones(2, 3).to_mkldnn(),
    "nested strided": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "quantised by channel": lambda: torch.quantize_per_channel(
        torch.ones(2, 3), torch.ones(2), torch.zeros(2), 0, torch.quint8
    ),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "empty meta": lambda: torch.ones(0, 3, device="meta"),
    "meta parameter": lambda: torch.nn.Parameter(torch.ones(2, device="meta")),
    "wrapper": wrapper_without_storage,
    "zero": lambda: torch._efficientzerotensor((2, 3)),
    "uninitialised parameter": lambda: torch.nn.LazyLinear(3).weight,
    "uninitialised buffer": lambda: torch.nn.parameter.UninitializedBuffer(),
}


@pytest.mark.parametrize("name", TORCH_FORMS)
def test_torch_forms_without_plain_memory(name):
    # Old versions ask the wrapper for its strides, and it raises an error of its own.
    kinds = (
        (ferry.FerryError, Exception) if name == "wrapper" else (ferry.NotATensorError, TypeError)
    )
    home = "torch" if name.startswith("uninitialised") else None
    refused_everywhere(*kinds, TORCH_FORMS[name](), home)


HIDDEN_TYPES = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
    "float4_e2m1fn_x2",
    "complex32",
    "bcomplex32",
    "bits8",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
]


@pytest.mark.parametrize("name", [name for name in HIDDEN_TYPES if hasattr(torch, name)])
def test_torch_types_without_a_counterpart(name):
    dtype = getattr(torch, name)
    tensor = torch.zeros(16, dtype=torch.uint8).view(dtype)
    error = refused_everywhere(ferry.UnsupportedDTypeError, TypeError, tensor)
    assert name in str(error)


@pytest.fixture(scope="module")
def told() -> dict[str, str | None]:
    """What each story of the child came to: None, or a traceback."""
    done = subprocesses.attempt_program("front/torch_wrappers.py")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", STORIES)
def test_torch_wrappers(name, told):
    assert told[name] is None, told[name]


def test_storages_that_a_subclass_or_a_mode_makes_up():
    from torch.overrides import TorchFunctionMode

    class Sub(torch.Tensor):
        def untyped_storage(self):
            return torch.zeros(1).untyped_storage()

    assert ferry.to(torch.ones(5).as_subclass(Sub), "numpy").tolist() == [1] * 5

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if "storage" in getattr(function, "__name__", ""):
                return None
            return function(*args, **(kwargs or {}))

    tensor = torch.arange(3.0)
    with Mode(), pytest.raises(ferry.NotATensorError):
        ferry.to(tensor, "numpy")
    assert ferry.to(tensor, "numpy").tolist() == [0, 1, 2]


def test_a_mode_that_hands_out_another_storage():
    """A share whose owner is a copy of the storage would outlive its memory."""
    from torch.overrides import TorchFunctionMode

    class Swaps(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            return result.clone() if isinstance(result, torch.UntypedStorage) else result

    tensor = torch.full((1000,), 7.0)
    with Swaps():
        error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(tensor, "numpy"))
    assert "storage" in str(error)
    assert ferry.to(tensor, "numpy").tolist() == tensor.tolist()


def test_the_first_call_under_a_mode():
    """What is found out once about PyTorch does not depend on the mode that happens to be on."""
    subprocesses.run_program("front/first_call_under_a_mode.py", "function_mode")


def test_the_first_call_under_a_mode_of_the_other_kind():
    """One that stands behind the dispatcher, and calls us back: the first call must not wait for
    itself."""
    subprocesses.run_program("front/first_call_under_a_mode.py", "dispatch_mode")


def test_a_class_whose_resolve_neg_returns_no_tensor():
    class Odd(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, kinds, arguments=(), keywords=None):
            if function is torch.Tensor.resolve_neg:
                return [1, 2]
            return super().__torch_function__(function, kinds, arguments, keywords or {})

    negated = torch.ones(4, dtype=torch.complex64).conj().imag.as_subclass(Odd)
    assert negated.is_neg()
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(negated, "numpy"))
