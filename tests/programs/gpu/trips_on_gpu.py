"""Converts between every pair of frameworks on the GPU, and prints the states of the fast paths."""

from __future__ import annotations

import json

# It imports the frameworks in the order in which they live together.
import gpu.conftest  # noqa: F401
import numpy as np
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry
from tensorferry._native import _fast_paths

expected = np.arange(12, dtype=np.float32).reshape(3, 4)
for source in GPU_FRAMEWORKS.values():
    for target in GPU_FRAMEWORKS.values():
        y = ferry.to(source.make(expected), target.name)
        assert target.on_gpu(y)
        np.testing.assert_array_equal(target.host(y), expected)
print(json.dumps({row["name"]: (row["state"], row["reason"]) for row in _fast_paths()}))
