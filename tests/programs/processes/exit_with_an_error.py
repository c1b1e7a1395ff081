"""Ends by an error of ours, which nobody catches, while a share is held."""

from __future__ import annotations

import numpy as np

import tensorferry as ferry

held = ferry.to(np.ones(3).data, "numpy")
ferry.to(3, "numpy")
