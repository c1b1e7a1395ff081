"""Errors of `to` and `plan` on the host: objects, frameworks, types, devices and arguments."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import tensorferry as ferry

Case = Callable[[Path], object]


def source() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)


def to(x: object, framework: object = "torch", **options: Any) -> Case:
    return lambda _: ferry.to(x, framework, **options)


def read_only() -> np.ndarray:
    x = source()
    x.flags.writeable = False
    return x


def deleted(_: Path) -> object:
    x = jnp.arange(4.0)
    x.delete()
    return ferry.to(x, "numpy")


def freed(_: Path) -> object:
    x = torch.arange(4.0)
    x.untyped_storage().resize_(0)
    return ferry.to(x, "numpy")


def traced(_: Path) -> object:
    return jax.jit(lambda x: ferry.to(x, "numpy"))(jnp.ones(3))


def tree_that_contains_itself(_: Path) -> object:
    tree: list[object] = [source()]
    tree.append(tree)
    return ferry.to(tree, "torch")


class Failing:
    def __dlpack__(self, **options: object) -> object:
        raise ValueError("no memory here")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Silent(Failing):
    def __dlpack__(self, **options: object) -> object:
        return None


OBJECTS = {
    "number": to(3),
    "unknown class": to(uuid.UUID(int=0)),
    "masked array": to(np.ma.array([1.0, 2.0], mask=[True, False])),
    "random key": lambda _: ferry.to(jax.random.key(0), "numpy"),
    "deleted array": deleted,
    "freed storage": freed,
    "traced array": traced,
    "tree that holds itself": tree_that_contains_itself,
    "__dlpack__ that raises": to(Failing()),
    "__dlpack__ without a capsule": to(Silent()),
}


FRAMEWORKS = {
    "unknown name": to(source(), "torhc"),
    "unknown module": to(source(), pathlib),
    "number": to(source(), 3),
}

DTYPES = {
    "objects": to(np.array([1, None], dtype=object)),
    "text": to(np.array(["a", "bc"])),
    "structured": to(np.zeros(3, [("a", "i4"), ("b", "f8")])),
    "text in a tree": to({"k": [0, np.array(["a"])]}),
    "type that JAX lacks": to(np.ones(3), "jax"),
    "unknown name": to(source(), dtype="float33"),
    "imaginary part": to(np.ones(3, "c8"), dtype="float32"),
    "name that several are close to": to(source(), dtype="floaty"),
    "number": to(source(), dtype=3),
}

DEVICES = {
    "unknown name": to(source(), device="cpuu"),
    "GPU for NumPy": to(source(), "numpy", device="cuda"),
    "GPU for a build without CUDA": to(source(), "jax", device="cuda"),
    "second CPU": to(source(), device="cpu:1"),
    "second CPU in a tree": to({"a": [source()]}, "numpy", device="cpu:1"),
    "second CPU for out": to(source(), "numpy", device="cpu:1", out=source()),
}

COPIES = {
    "type": to(source(), dtype="float64", copy=False),
    "negative strides": to(np.arange(3.0)[::-1], copy=False),
    "byte order": to(np.arange(3, dtype=">f4"), copy=False),
    "read-only": to(read_only(), copy=False),
    "conjugated": to(torch.ones(2, dtype=torch.complex64).conj(), "numpy", copy=False),
    "one of a tree": to({"a": source(), "b": np.arange(3.0)[::-1]}, copy=False),
}

OUTS = {
    "another shape": to(source(), "numpy", out=np.zeros((3, 2), np.float32)),
    "another dtype": to(source(), "numpy", out=np.zeros((2, 3))),
    "dtype against out": to(source(), "numpy", out=source(), dtype="float64"),
    "another framework": to(source(), "torch", out=source()),
    "read-only": to(source(), "numpy", out=read_only()),
    "broadcast": to(source(), "torch", out=torch.zeros(3).expand(2, 3)),
    "tree": to(source(), "numpy", out=[source()]),
    "copy=False": to(source(), "numpy", out=source(), copy=False),
    "writable=False": to(source(), "numpy", out=source(), writable=False),
    "leaf": to(source(), out=torch.zeros(2, 3, requires_grad=True)),
    "not a leaf": to(source(), out=torch.zeros(2, 3, requires_grad=True) * 1),
}

ARGUMENTS = {
    "stream on the host": to(source(), stream=1),
    "stream that is not one": to(source(), stream="first"),
    "budget of text": to(source(), budget="1 MB"),
    "negative budget": to(source(), budget=-1),
    "budget that is too small": to(source(), copy=True, budget=23),
    "writable for JAX": to(source(), "jax", writable=True),
    "read-only for PyTorch": to(source(), writable=False),
}

CASES: dict[str, Case] = {
    f"{group}: {name}": case
    for group, cases in (
        ("object", OBJECTS),
        ("framework", FRAMEWORKS),
        ("dtype", DTYPES),
        ("device", DEVICES),
        ("copy=False", COPIES),
        ("out", OUTS),
        ("argument", ARGUMENTS),
    )
    for name, case in cases.items()
}
