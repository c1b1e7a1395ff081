"""Recognises sparse tensors, and sees that no framework is imported for that."""

from __future__ import annotations

import sys

from tensorferry import sparse


def loaded(*names: str) -> list[str]:
    """The modules of these names that are imported."""
    return [name for name in names if name in sys.modules]


assert not sparse.is_sparse(3)
assert not sparse.is_sparse([1])
assert not sparse.is_sparse(None)
assert not loaded("scipy", "torch", "jax", "tensorflow", "sparse")

import scipy.sparse  # noqa: E402

assert sparse.is_sparse(scipy.sparse.eye_array(3))
assert sparse.is_sparse(scipy.sparse.eye(3))
sparse.to(scipy.sparse.eye_array(3).tocsr(), "scipy", format="coo")
assert not loaded("torch", "jax", "tensorflow", "sparse")
