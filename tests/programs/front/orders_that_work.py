"""Imports Paddle and TensorFlow in ways that work, and converts between them."""

from __future__ import annotations

import importlib
import sys

import numpy as np
from support.cases import case, main

import tensorferry as ferry

x = np.arange(6, dtype=np.float32)


@case
def paddle_first() -> None:
    """Conversions import Paddle, then TensorFlow, then PyTorch."""
    ferry.to(x, "paddle")
    t = ferry.to(x, "tensorflow")
    assert (ferry.to(ferry.to(t, "paddle"), "numpy") == x).all()
    ferry.to(x, "torch")


@case
def both_loaded() -> None:
    """The caller imports both, in the order that works, before the first call."""
    importlib.import_module("paddle")
    importlib.import_module("tensorflow")
    assert (ferry.to(ferry.to(x, "paddle"), "tensorflow").numpy() == x).all()


@case
def tensorflow_blocked() -> None:
    """TensorFlow's import is blocked, so it is not loaded."""
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    assert ferry.to(np.arange(6), "paddle").numpy().tolist() == list(range(6))


if __name__ == "__main__":
    main()
