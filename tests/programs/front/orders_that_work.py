"""Imports Paddle and TensorFlow in ways that work, and converts between them."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from typing import Any

import numpy as np
from support.cases import case, main
from support.errors import raised

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


@case
def paddle_not_installed() -> None:
    """Paddle cannot be found after TensorFlow: the error says that, and not an order of imports."""
    importlib.import_module("tensorflow")
    find_spec = PathFinder.find_spec

    def find_others(name: str, *arguments: Any) -> Any:
        return None if name == "paddle" else find_spec(name, *arguments)

    PathFinder.find_spec = find_others  # type: ignore[method-assign, assignment]
    for way in (lambda: ferry.to(x, "paddle"), lambda: ferry.plan(x, "paddle")):
        error = raised(ferry.FrameworkNotFoundError, way)
        assert str(error).startswith("Paddle is not installed"), error
        assert "pip install" in (error.hint or ""), error


if __name__ == "__main__":
    main()
