"""Bytes between GPU and host by every transfer path, on a CuPy over the fake driver, which works
late and fails on demand.

Each case of the programs runs in a process of its own.
"""

from __future__ import annotations

import pytest
from support import fake_driver, subprocesses


def run_path(case: str, **environment: str) -> str:
    return fake_driver.run_program("front/transfer_paths.py", case, **environment)


def run_job(case: str) -> None:
    fake_driver.run_program("front/transfer_jobs.py", case)


def run_failure(case: str, *arguments: str) -> None:
    fake_driver.run_program("front/transfers_that_fail.py", case, *arguments)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_downloads_of_every_size(threads):
    run_path("downloads_of_every_size", TENSORFERRY_THREADS=threads)


def test_strides_and_casts_are_folded_in():
    run_path("strides_and_casts")


def test_slabs_where_the_gpu_has_little_memory():
    run_path("little_gpu_memory")


def test_a_result_that_was_dropped_leaves_pinned_memory():
    run_path("dropped_result")


def test_pinned_memory_is_bounded():
    run_path("bounded_pinned_memory", TENSORFERRY_POOL="16M", TENSORFERRY_THREADS="1")


@pytest.mark.parametrize("way", ["handler", "sys.exit"])
def test_the_exit_ends_jobs(way):
    fake_driver.run_program("front/transfers_at_exit.py", way)


def test_memory_that_somebody_still_reads_is_not_overwritten():
    """A result that went may be on its way to a GPU: others copy late from pinned memory."""
    run_path("result_that_is_still_read")


@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_nor_is_it_a_buffer(threads):
    run_path("buffer_that_is_still_read", TENSORFERRY_THREADS=threads)


def test_queued_work_is_waited_for():
    run_path("queued_work")


DRIVER_ERRORS = [
    *("cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventSynchronize", "cuStreamWaitEvent"),
    *("cuEventQuery", "cuEventCreate", "cuStreamCreate", "cuStreamSynchronize", "cuLaunchKernel"),
]


@pytest.mark.parametrize("name", DRIVER_ERRORS)
def test_a_device_that_fails_midway(name):
    run_failure("device_fails_midway", name)


def test_a_system_that_lets_nobody_pin():
    run_failure("nothing_can_be_pinned")


@pytest.mark.parametrize("case", ["out", "refused_out"])
def test_out(case):
    run_path(case)


def test_out_of_torch_that_is_filled_half():
    run_failure("out_of_torch")


def test_to_async():
    run_job("jobs")


def test_a_job_whose_stream_is_the_caller_s():
    """What is queued on the stream that is current at the call is waited for, not that of a thread
    of the job's."""
    run_job("stream_of_the_caller")


def test_a_job_is_cancelled():
    run_job("cancelled_jobs")


def test_progress_and_interruption():
    run_job("progress_and_interrupts")


def test_the_plan_names_the_transfer_path():
    run_path("planned_paths")


def test_chunks_and_threads_can_be_set():
    asked = [("1M", "2"), ("4M", "2"), ("2M", "3")]
    pinned = [
        int(
            run_path(
                "pinned_after_a_download", TENSORFERRY_CHUNK=chunk, TENSORFERRY_THREADS=threads
            )
        )
        for chunk, threads in asked
    ]
    # Two buffers for each thread.
    assert pinned == [4, 16, 12]
    done = subprocesses.attempt_program(
        "front/import_in_order.py", "tensorferry", TENSORFERRY_CHUNK="7", PYTHONWARNINGS="default"
    )
    assert 'TENSORFERRY_CHUNK: "7" is not' in done.stderr


def test_a_failed_transfer_leaves_no_wait_and_no_event():
    run_failure("no_wait_and_no_event_is_left")
