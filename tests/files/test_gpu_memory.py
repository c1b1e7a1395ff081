"""Files and GPU memory on a machine without a GPU: a CuPy on the stand-in for the driver."""

from __future__ import annotations

import pytest
from support.fake_driver import run_program


@pytest.mark.parametrize("case", ["load", "save_in_blocks", "save_every_shape", "fail_to_save"])
def test_files_and_gpu_memory(case: str) -> None:
    run_program("files/gpu_files.py", case)
