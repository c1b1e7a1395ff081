"""Converts PyTorch's tensors without plain memory, and prints what became of each as JSON.

Some of these make PyTorch import Triton, which ends a process that has loaded TensorFlow.
"""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from support import refusals
from support.refusals import refused, refused_everywhere

import tensorferry as ferry

Function = Callable[[Any], Any]

FUNCTORCH: dict[str, Callable[[Function, Any], Any]] = {
    "vmap": lambda f, x: torch.func.vmap(f)(x),
    "grad": lambda f, x: torch.func.grad(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "functionalize": lambda f, x: torch.func.functionalize(f)(x),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(f))(x),
    "grad of vmap": lambda f, x: torch.func.grad(lambda x: torch.func.vmap(f)(x).sum())(x),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
}


def functorch(name: str) -> None:
    """A tensor that torch.func transforms is refused inside, and the original is not changed."""
    seen = []
    x = torch.ones(2, 3)

    def body(x: Any) -> Any:
        seen.append(refused_everywhere(ferry.NotATensorError, TypeError, x))
        refused_everywhere(ferry.NotATensorError, TypeError, x.sum())
        return x.sum()

    FUNCTORCH[name](body, x)
    assert seen
    assert ferry.to(x, "numpy").tolist() == [[1, 1, 1], [1, 1, 1]]


def jagged() -> None:
    """A nested tensor in the jagged layout."""
    tensor = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert "nested" in str(refused_everywhere(ferry.NotATensorError, TypeError, tensor))


def fake() -> None:
    """Fake tensors, outside of the mode that made them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fakes = [torch.ones(2, 3), torch.nn.Parameter(torch.ones(2, 3)), torch.ones(0)]
    for tensor in fakes:
        assert "fake" in str(refused_everywhere(ferry.NotATensorError, TypeError, tensor))


def real_inside_fake_mode() -> None:
    """A real tensor in fake mode: it goes where PyTorch has the exchange API."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = torch.arange(3.0)
    with FakeTensorMode():
        refused(ferry.NotATensorError, TypeError, lambda: ferry.to(torch.ones(3), "numpy"))
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            assert ferry.to(real, "numpy").tolist() == [0, 1, 2]
        else:
            refused(ferry.FerryError, Exception, lambda: ferry.to(real, "numpy"))


def make_fx(mode: str) -> None:
    """Tensors that make_fx traces."""
    from torch.fx.experimental.proxy_tensor import make_fx

    seen = []

    def body(x: Any) -> Any:
        for thing in (x, x + 1):
            seen.append(refused_everywhere(ferry.NotATensorError, TypeError, thing))
        return x * 2

    make_fx(body, tracing_mode=mode)(torch.ones(3))
    assert len(seen) == 2


def export() -> None:
    """Tensors that torch.export traces."""
    seen = []

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(refused_everywhere(ferry.NotATensorError, TypeError, x))
            return x + 1

    torch.export.export(Module(), (torch.ones(3),), strict=False)
    assert seen


def fx_proxy() -> None:
    """The proxies of torch.fx."""
    seen = []

    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(refused(ferry.FerryError, Exception, lambda: ferry.to(x, "numpy")))
            return x + 1

    torch.fx.symbolic_trace(Module())
    assert seen


def distributed() -> None:
    """A DTensor, whose local part can be converted."""
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


RESIZED: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.arange(12.0),
    "offset": lambda: torch.arange(16.0)[4:],
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "expanded": lambda: torch.arange(12.0).expand(3, 12),
    "parameter": lambda: torch.nn.Parameter(torch.arange(12.0)),
    "conjugate": lambda: torch.ones(6, dtype=torch.complex64).conj(),
    "int8": lambda: torch.arange(48, dtype=torch.int8),
    "subclass": lambda: torch.arange(12.0).as_subclass(type("Sub", (torch.Tensor,), {})),
}


def resized(name: str) -> None:
    """A tensor whose storage was freed, as FSDP does, or made smaller: shape and strides stay."""
    for size in (0, 4, 44):
        tensor = RESIZED[name]()
        tensor.untyped_storage().resize_(size)
        error = refused_everywhere(ferry.InvalidTensorError, BufferError, tensor)
        if name != "subclass":  # PyTorch pickles those
            refused(ferry.InvalidTensorError, BufferError, partial(ferry.pickling.dumps, tensor))
        required = 64 if name == "offset" else 48
        assert f"has {size} bytes, and its elements need {required}" in str(error), error
        values = np.zeros(tensor.shape, str(tensor.dtype).removeprefix("torch."))
        fill = partial(ferry.to, values, "torch", out=tensor)
        refused(ferry.FerryError, ValueError, fill)
        empty = torch.ones(3, 4)[:0]
        empty.untyped_storage().resize_(size)
        assert ferry.to(empty, "numpy").shape == (0, 4)


STORIES: dict[str, Callable[[], None]] = {
    **{f"functorch {name}": partial(functorch, name) for name in FUNCTORCH},
    **{f"resized {name}": partial(resized, name) for name in RESIZED},
    "jagged": jagged,
    "fake": fake,
    "real inside fake mode": real_inside_fake_mode,
    "make_fx fake": partial(make_fx, "fake"),
    "make_fx symbolic": partial(make_fx, "symbolic"),
    "export": export,
    "fx proxy": fx_proxy,
    "DTensor": distributed,
}


def main() -> None:
    """Runs every story, and prints None or a traceback for each."""
    refusals.TARGETS = ("numpy", "jax")  # type: ignore[assignment]
    results: dict[str, str | None] = {}
    for name, story in STORIES.items():
        try:
            story()
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
