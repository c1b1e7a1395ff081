"""The C table, and functions in Rust, with GPU memory on a fake driver."""

from __future__ import annotations

import pytest
from support import extensions, fake_driver


@pytest.mark.parametrize("case", ["shares", "copies", "refusals", "wraps"])
def test_gpu_memory(case: str) -> None:
    fake_driver.run_program("extensions/gpu_tensors.py", case)


@pytest.mark.extensions
@pytest.mark.parametrize("case", ["views", "any_tensor", "streams", "results"])
def test_gpu_memory_in_rust(case: str) -> None:
    module = extensions.build("tensorferry-test-pyo3")
    fake_driver.run_program("extensions/pyo3_gpu_tensors.py", case, str(module))
