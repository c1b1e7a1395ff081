"""Asks for frameworks that cannot be imported: the error says how to install each."""

from __future__ import annotations

import array
import sys
from functools import partial

HIDDEN = ("torch", "jax", "tensorflow", "paddle", "mlx")
for name in (*HIDDEN, "mlx.core"):
    sys.modules[name] = None  # type: ignore[assignment]

from support.refusals import refused  # noqa: E402

import tensorferry as ferry  # noqa: E402

for name in HIDDEN:
    error = refused(
        ferry.FrameworkNotFoundError,
        ImportError,
        partial(ferry.to, array.array("f", [1]), name),
    )
    assert isinstance(error, ferry.FerryError)
    assert "pip install" in (error.hint or ""), error
