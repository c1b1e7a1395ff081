"""Prints the warnings of the import, whether a copy works, and the state of named fast paths."""

from __future__ import annotations

import sys
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tensorferry as ferry
for one in caught:
    print(one.category.__name__, one.message)

import numpy as np  # noqa: E402

from tensorferry._native import _fast_path_enabled  # noqa: E402

x = np.arange(5000, dtype=np.float32)
assert (ferry.to(x, "numpy", copy=True) == x).all()
print(ferry.memory_stats().limit_bytes > 0)
if sys.argv[1:]:
    print(*map(_fast_path_enabled, sys.argv[1:]))
