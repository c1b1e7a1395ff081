"""GPU memory between processes, on the stand-in for the driver; tests/gpu has a real one."""

from __future__ import annotations

import pytest
from support.fake_driver import run_program

CASES = "processes/share_gpu_cases.py"


@pytest.mark.parametrize(
    "case",
    [
        "shared_as_it_is",
        "read_only",
        "between_host_and_gpu",
        "small_view_of_a_large_allocation",
        "published_again",
        "unseen_gpu",
        "new_memory",
    ],
)
def test_gpu_memory(case: str) -> None:
    run_program(CASES, case)


@pytest.mark.parametrize(
    "call", ["cuIpcGetMemHandle", "cuMemCreate", "cuMemExportToShareableHandle"]
)
def test_a_driver_that_refuses_leaves_nothing_half_done(call: str) -> None:
    run_program(CASES, "driver_that_refuses", call)


def test_others_continue_while_gpu_memory_is_released() -> None:
    run_program("processes/gpu_release_beside_threads.py")
