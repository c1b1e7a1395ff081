"""Errors of sparse tensors: formats, invalid index arrays, block sizes, dense targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

import tensorferry as ferry
from tensorferry import sparse

Case = Callable[[Path], object]


def csr(**changes: list[int]) -> scipy.sparse.csr_array:
    """Three rows and four columns, with the arrays in `changes` replaced."""
    x = scipy.sparse.csr_array(np.eye(3, 4, dtype="float32"))
    for name, values in changes.items():
        setattr(x, name, np.array(values, getattr(x, name).dtype))
    return x


def to(x: object, framework: str = "torch", **options: Any) -> Case:
    return lambda _: sparse.to(x, framework, **options)


def coo(row: int, column: int) -> torch.Tensor:
    places = torch.tensor([[row], [column]])
    return torch.sparse_coo_tensor(places, torch.ones(1), (3, 4), check_invariants=False)


def hybrid() -> torch.Tensor:
    values = torch.arange(6.0).reshape(3, 2)
    return torch.sparse_coo_tensor([[0, 2, 0]], values, (3, 2), check_invariants=True)


def batch() -> torch.Tensor:
    return torch.stack([torch.eye(3), torch.eye(3)]).to_sparse_csr()


CASES: dict[str, Case] = {
    "index: out of bounds": to(csr(indices=[0, 1, 4])),
    "index: decreasing indptr": to(csr(indptr=[0, 2, 1, 3])),
    "index: first of indptr": to(csr(indptr=[1, 1, 2, 3])),
    "index: last of indptr": to(csr(indptr=[0, 1, 2, 9])),
    "index: length of indptr": to(csr(indptr=[0, 1, 3])),
    "index: coordinate out of bounds": to(coo(0, 4), "scipy"),
    "format: that JAX lacks": to(csr(), "jax", format="csc"),
    "format: that nobody else has": to(scipy.sparse.eye_array(3, format="dia")),
    "format: three axes": to(torch.ones(2, 2, 2).to_sparse(), "scipy", format="csr"),
    "format: hybrid": to(hybrid(), "scipy"),
    "format: batch": to(batch(), "scipy"),
    "format: of a dense tensor": lambda _: sparse.plan(csr(), "torch", dense=True, format="csr"),
    "blocks: missing size": to(csr(), "scipy", format="bsr"),
    "blocks: size that does not divide": to(csr(), "scipy", format="bsr", blocksize=(2, 2)),
    "blocks: size of zero": to(csr(), "scipy", format="bsr", blocksize=(0, 3)),
    "blocks: format without blocks": to(csr(), blocksize=(1, 2)),
    "dtype: that SciPy lacks": to(torch.eye(2, dtype=torch.bfloat16).to_sparse(), "scipy"),
    "copy=False: coordinates": to(scipy.sparse.coo_array(np.eye(3)), copy=False),
    "argument: budget": lambda _: ferry.to(csr(), "torch", budget=1),
    "argument: dense tensor": to(np.eye(3)),
    "argument: framework without sparse tensors": to(csr(), "numpy"),
    "argument: dense leaf for SciPy": lambda _: ferry.to([csr(), np.ones(2)], "scipy"),
    "argument: file": lambda folder: ferry.save(folder / "x.npy", csr()),
}
