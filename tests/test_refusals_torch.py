"""PyTorch's tensors without plain memory are refused in words.

Some of these (jagged and fake tensors, torch.func, tracing) make PyTorch import Triton, which ends
a process that has loaded TensorFlow: they run in a child, all in one, each reported as a test.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback

import pytest
import torch
from support import refusals, subprocesses
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


# From here on: run by the child.

FUNCTORCH = {
    "vmap": lambda f, x: torch.func.vmap(f)(x),
    "grad": lambda f, x: torch.func.grad(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "functionalize": lambda f, x: torch.func.functionalize(f)(x),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(f))(x),
    "grad of vmap": lambda f, x: torch.func.grad(lambda x: torch.func.vmap(f)(x).sum())(x),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
}


def functorch(name: str) -> None:
    seen = []
    x = torch.ones(2, 3)

    def body(x):
        seen.append(refused_everywhere(ferry.NotATensorError, TypeError, x))
        refused_everywhere(ferry.NotATensorError, TypeError, x.sum())
        return x.sum()

    FUNCTORCH[name](body, x)
    assert seen
    assert ferry.to(x, "numpy").tolist() == [[1, 1, 1], [1, 1, 1]]


def jagged() -> None:
    tensor = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert "nested" in str(refused_everywhere(ferry.NotATensorError, TypeError, tensor))


def fake() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fakes = [torch.ones(2, 3), torch.nn.Parameter(torch.ones(2, 3)), torch.ones(0)]
    for tensor in fakes:
        assert "fake" in str(refused_everywhere(ferry.NotATensorError, TypeError, tensor))


def real_inside_fake_mode() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = torch.arange(3.0)
    with FakeTensorMode():
        refused(ferry.NotATensorError, TypeError, lambda: ferry.to(torch.ones(3), "numpy"))
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            assert ferry.to(real, "numpy").tolist() == [0, 1, 2]
        else:
            refused(ferry.FerryError, Exception, lambda: ferry.to(real, "numpy"))


def make_fx(mode: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    seen = []

    def body(x):
        for thing in (x, x + 1):
            seen.append(refused_everywhere(ferry.NotATensorError, TypeError, thing))
        return x * 2

    make_fx(body, tracing_mode=mode)(torch.ones(3))
    assert len(seen) == 2


def export() -> None:
    seen = []

    class Module(torch.nn.Module):
        def forward(self, x):
            seen.append(refused_everywhere(ferry.NotATensorError, TypeError, x))
            return x + 1

    torch.export.export(Module(), (torch.ones(3),), strict=False)
    assert seen


def fx_proxy() -> None:
    seen = []

    class Module(torch.nn.Module):
        def forward(self, x):
            seen.append(refused(ferry.FerryError, Exception, lambda: ferry.to(x, "numpy")))
            return x + 1

    torch.fx.symbolic_trace(Module())
    assert seen


def distributed() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", world_size=1, rank=0)
        tensor = distribute_tensor(torch.arange(6.0), init_device_mesh("cpu", (1,)), [Shard(0)])
        for thing in (tensor, torch.nn.Parameter(tensor), tensor + 1):
            assert "to_local" in str(refused_everywhere(ferry.NotATensorError, TypeError, thing))
        assert ferry.to(tensor.to_local(), "numpy").tolist() == [0, 1, 2, 3, 4, 5]
        dist.destroy_process_group()


STORIES = {
    **{f"functorch {name}": lambda name=name: functorch(name) for name in FUNCTORCH},
    "jagged": jagged,
    "fake": fake,
    "real inside fake mode": real_inside_fake_mode,
    "make_fx fake": lambda: make_fx("fake"),
    "make_fx symbolic": lambda: make_fx("symbolic"),
    "export": export,
    "fx proxy": fx_proxy,
    "DTensor": distributed,
}


@pytest.fixture(scope="module")
def told() -> dict[str, str | None]:
    """What each story of the child came to: None, or a traceback."""
    done = subprocesses.attempt("import test_refusals_torch as t; t.tell()")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", STORIES)
def test_torch_wrappers(name, told):
    assert told[name] is None, told[name]


def tell() -> None:
    """Runs every story and prints what became of it."""
    refusals.TARGETS = ("numpy", "jax")
    results = {}
    for name, story in STORIES.items():
        try:
            story()
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc()
    print(json.dumps(results))
    sys.stdout.flush()


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
    subprocesses.run(
        """
        import ml_dtypes, numpy as np, torch
        from torch.overrides import TorchFunctionMode
        import tensorferry as ferry

        class Calls(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                if isinstance(result, torch.Tensor):
                    ferry.to(result, "numpy")
                return result

        with torch.device("meta"), Calls():
            assert ferry.to(np.ones(3, "f4"), "torch").device.type == "cpu"
        try:
            torch.utils.dlpack.to_dlpack(torch.empty(1, dtype=torch.float8_e5m2))
        except Exception:
            pass  # this version does not exchange it
        else:
            x = ferry.to(np.ones(3, ml_dtypes.float8_e5m2), "torch")
            assert x.dtype == torch.float8_e5m2
        seen = []

        class Sees(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                seen.append(function)
                return function(*args, **(kwargs or {}))

        with Sees():
            torch.ones(1)
        assert seen, "modes work as before"
        """
    )


def test_the_first_call_under_a_mode_of_the_other_kind():
    """One that stands behind the dispatcher, and calls us back: the first call must not wait for
    itself."""
    subprocesses.run(
        """
        import numpy as np, torch
        from torch.utils._python_dispatch import TorchDispatchMode
        import tensorferry as ferry

        class Calls(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                if isinstance(result, torch.Tensor):
                    ferry.to(result, "numpy")
                return result

        with Calls():
            x = ferry.to(np.ones(3, "f4"), "torch")
        assert x.tolist() == [1, 1, 1]
        """
    )
