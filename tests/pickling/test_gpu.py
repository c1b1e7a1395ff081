"""Arrays in GPU memory, on the fake driver."""

from __future__ import annotations

import pytest
from support import fake_driver


@pytest.mark.parametrize("case", ["arrays", "ties", "plans", "missing_devices"])
def test_on_the_fake_driver(case: str) -> None:
    fake_driver.run_program("pickling/gpu_arrays.py", case)
