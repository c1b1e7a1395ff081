"""Results in GPU memory on a machine without a GPU: a CuPy on the fake driver, which works late and
fails on demand."""

from __future__ import annotations

from support import fake_driver


def run(case: str) -> None:
    fake_driver.run_program("front/gpu_results.py", case)


def test_uploads_and_copies():
    run("uploads_and_copies")


def test_a_share_waits_for_the_source_s_stream():
    run("share_waits_for_the_stream_of_the_source")


def test_memory_is_released_after_the_work_that_is_queued_on_it():
    run("release_after_queued_work")


def test_a_copy_for_a_stream_is_allocated_there():
    run("copy_for_a_stream")


def test_cupy_without_a_gpu():
    run("without_a_gpu")


def test_between_two_gpus():
    run("two_gpus")


def test_failures_leave_everything_usable():
    run("failures")


def test_captures_are_not_broken_off():
    run("captures")


def test_addresses_tell_their_device():
    run("addresses_tell_their_device")


def test_a_device_that_is_lost_for_good():
    run("lost_device")
