"""Casts subnormal numbers on a thread that has told its processor to flush them.

The argument says whether helper threads are started before that ("after helpers") or by that thread
("before helpers"), from which they would inherit it.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

import tensorferry as ferry

wide = np.full(1 << 21, 1e-40)
narrow = wide.astype("f4")
assert (narrow != 0).all()


def check() -> None:
    """Casts to types that can hold the numbers, and to bool."""
    for x, dtype in ((wide, "float32"), (narrow, "float64"), (narrow, "bool")):
        got = ferry.to(x, "numpy", dtype=dtype)
        torch.set_flush_denormal(False)
        assert (got != 0).all(), dtype
        torch.set_flush_denormal(True)


if sys.argv[1] == "after helpers":
    ferry.to(np.ones(1 << 22), "numpy", copy=True)
assert torch.set_flush_denormal(True)
check()
