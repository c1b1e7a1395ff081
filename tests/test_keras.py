"""Keras with each backend: variables as arguments, and a recipe for `model.fit`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import subprocesses
from support.oldest import OLDEST

PAGE = Path(__file__).parent.parent / "docs" / "guides" / "feeding.md"


@pytest.mark.skipif(OLDEST, reason="these are the oldest supported frameworks")
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_variables_and_the_recipe_for_fit(backend: str) -> None:
    done = subprocesses.attempt_program("front/keras_backend.py", str(PAGE), KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
