"""Feeds of CuPy over the fake driver: the order of streams, and the memory of an epoch."""

from __future__ import annotations

import pytest
from support import fake_driver


@pytest.mark.parametrize("case", ["order", "casts", "gpu_sources", "no_memory", "release"])
def test_uploads(case: str) -> None:
    fake_driver.run_program("feeding/uploads.py", case)
