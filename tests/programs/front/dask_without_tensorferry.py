"""Imports Dask where tensorferry and its extension module cannot be imported, and asks sizes."""

from __future__ import annotations

import sys

# Whatever imports one of them fails.
sys.modules["tensorferry"] = None  # type: ignore[assignment]
sys.modules["tensorferry._native"] = None  # type: ignore[assignment]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from dask.sizeof import sizeof  # noqa: E402

print(sizeof(torch.zeros(1 << 20)))
print(sizeof(np.zeros(100, np.float32)))
print(sizeof(b"abc"))
