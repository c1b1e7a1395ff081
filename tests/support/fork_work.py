"""Conversions that a process makes before and after a fork."""

from __future__ import annotations

import numpy as np

import tensorferry as ferry

big = np.arange(2 << 20, dtype=np.float32).reshape(2048, 1024)


def work() -> None:
    """Copies, packs, casts and shares an array that is large enough for helper threads."""
    got = ferry.to(big, "numpy", copy=True)
    assert got.ctypes.data != big.ctypes.data
    assert (got == big).all()
    got = ferry.to(big.T, "numpy", copy=True)
    assert (got == big.T).all()
    got = ferry.to(big[::-1], "numpy", dtype="float64")
    assert (got == big[::-1]).all()
    share = ferry.to(big.data, "numpy")
    share[0, 0] = 7
    assert big[0, 0] == 7
    big[0, 0] = 0
