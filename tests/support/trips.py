"""Trips between all frameworks with the values checked, and the states of the fast paths."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import numpy as np

import tensorferry as ferry
from tensorferry._native import _fast_paths

State = tuple[str, str | None]


def states() -> dict[str, State]:
    """The state of each fast path, and the reason for it."""
    return {str(row["name"]): (row["state"], row["reason"]) for row in _fast_paths()}


def go_everywhere(names: Iterable[str]) -> None:
    """Every pair of these frameworks, and what is particular to PyTorch and TensorFlow."""
    names = list(names)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for source in names:
        for target in names:
            y = ferry.to(ferry.to(x, source), target)
            np.testing.assert_array_equal(np.array(ferry.to(y, "numpy")), x)
    if "torch" in names:
        import torch

        for t in (torch.arange(3) * 1j).conj(), (torch.arange(3) * 1j).conj().imag:
            plain = t.resolve_conj().resolve_neg().numpy()
            np.testing.assert_array_equal(ferry.to(t, "numpy"), plain)
    if "tensorflow" in names:
        small = ferry.to(x, "tensorflow", dtype="float8_e5m2")
        np.testing.assert_array_equal(ferry.to(small, "numpy").astype(np.float32), x)


def go_sparse(names: Iterable[str]) -> None:
    """Sparse tensors from SciPy to these frameworks and back."""
    import scipy.sparse

    dense = np.diag(np.arange(1, 4, dtype=np.float32))
    for kind in scipy.sparse.csr_array, scipy.sparse.coo_array, scipy.sparse.csc_matrix:
        for name in names:
            there = ferry.to(kind(dense), name)
            np.testing.assert_array_equal(ferry.to(there, "scipy").toarray(), dense)


class Opaque:
    """An object that no framework knows."""


def go_into_trees() -> None:
    """Looks for tensors in an object without any."""
    with contextlib.suppress(ferry.NotATensorError):
        ferry.to(Opaque(), "numpy")
