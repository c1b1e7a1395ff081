"""The C table and GPU memory, on a fake driver."""

from __future__ import annotations

import pytest
from support import fake_driver


@pytest.mark.parametrize("case", ["shares", "copies", "refusals", "wraps"])
def test_gpu_memory(case: str) -> None:
    fake_driver.run_program("extensions/gpu_tensors.py", case)
