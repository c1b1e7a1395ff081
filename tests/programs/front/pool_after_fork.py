"""Uses the pool in the child of a fork: it has a pool of its own, and the parent's stays whole."""

from __future__ import annotations

import numpy as np
from support.forks import fork, wait

import tensorferry as ferry

x = np.arange(16 << 18, dtype=np.float32)
held = ferry.to(x, "numpy", copy=True)
ferry.to(x, "numpy", copy=True)
assert ferry.memory_stats().idle_bytes > 0


def use_the_pool() -> None:
    """Takes idle memory, gives it back and empties the cache."""
    one = ferry.to(x[::-1], "numpy", copy=True)
    assert (one == x[::-1]).all()
    assert (held == x).all()
    del one
    assert ferry.memory_stats().idle_bytes > 0
    ferry.empty_cache()
    assert ferry.memory_stats().idle_bytes == 0


wait(fork(use_the_pool))
assert (held == x).all()
assert ferry.memory_stats().idle_bytes > 0
