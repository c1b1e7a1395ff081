"""Prints the frameworks that the probe of `tensorferry doctor` imports by itself."""

from __future__ import annotations

import sys

import tensorferry._tools.doctor.probe  # noqa: F401

loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & {"numpy", "ml_dtypes", "torch", "jax"}))
