"""GPU memory on a machine without a GPU, on a fake driver that works late and fails on demand."""

from __future__ import annotations

import numpy as np
import pytest
from support import fake_driver, subprocesses
from support.refusals import refused

import tensorferry as ferry


def run(case: str) -> None:
    driver = str(fake_driver.DRIVER)
    subprocesses.run_program("front/gpu_interface.py", case, LD_LIBRARY_PATH=driver)


def test_downloads():
    run("downloads")


def test_strides_and_casts_are_packed_on_the_device():
    run("strides_and_casts")


def test_elements_that_are_not_aligned():
    run("unaligned_elements")


def test_work_that_is_queued_is_waited_for():
    run("queued_work")


def test_running_out_of_memory_and_other_failures():
    run("failures")


def test_bad_interfaces_are_refused():
    run("invalid_interfaces")


def test_asking_for_what_cannot_be():
    run("impossible_requests")


def test_a_fork_is_told():
    run("fork")


def test_without_a_driver():
    """This machine may have none: then the error says so, and nothing else breaks."""
    subprocesses.run_program("front/without_a_driver.py", LD_LIBRARY_PATH="")


@pytest.mark.parametrize("device", ["cuda:-1", "gpu:x", "tpu", 7])
def test_devices_that_mean_nothing(device):
    refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(np.ones(2), "torch", device=device)
    )


def test_streams_that_mean_nothing():
    for stream in ("main", -3, object()):
        refused(
            ferry.InvalidArgumentError,
            ValueError,
            lambda stream=stream: ferry.to(np.ones(2), "torch", stream=stream),
        )


@pytest.mark.parametrize("stream", [3, 8, 4095, 4097, 2**48 + 4])
def test_numbers_that_are_the_handle_of_no_stream(stream):
    """Handles are addresses: aligned, and not in the first page. The driver follows any number."""

    class Foreign:
        def __cuda_stream__(self):
            return 0, stream

    for given in (stream, Foreign()):
        error = refused(
            ferry.InvalidArgumentError,
            ValueError,
            lambda given=given: ferry.to(np.ones(2), "torch", stream=given),
        )
        assert f"stream is {stream}," in str(error)
