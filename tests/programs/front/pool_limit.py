"""Holds and drops results of 16 MiB; the pool keeps as many idle bytes as the environment allows.

The arguments are the limit in bytes and the idle bytes that are expected at the end.
"""

from __future__ import annotations

import sys

import numpy as np

import tensorferry as ferry

limit, idle = map(int, sys.argv[1:])
x = np.arange(16 << 18, dtype=np.float32)
assert ferry.memory_stats().limit_bytes == limit
held = [ferry.to(x + i, "numpy", copy=True) for i in range(6)]
assert all((one == x + i).all() for i, one in enumerate(held))
assert ferry.memory_stats().used_bytes >= 6 * x.nbytes
del held
now = ferry.memory_stats()
assert now.used_bytes == 0
assert now.idle_bytes == idle, now
