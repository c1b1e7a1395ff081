"""Reads GPU memory where there may be no CUDA driver: the error says so, and the rest works."""

from __future__ import annotations

import numpy as np
from support.errors import raised

import tensorferry as ferry


class OnGpu:
    """An array at an address that no GPU has."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "version": 3,
        "shape": (3,),
        "typestr": "<f4",
        "data": (4096, False),
        "strides": None,
    }


error = raised(ferry.FerryError, ferry.to, OnGpu(), "numpy")
assert error.hint
# Where there is a driver, it knows the address of no GPU.
assert "no CUDA driver" in str(error) or "no GPU" in str(error), error
assert ferry.to(np.ones(3), "numpy", copy=True).sum() == 3
