"""`ferry.to_async` and `ferry.Job`: futures that the standard library can wait for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from support import subprocesses

import tensorferry as ferry

COUNT = 8


def source(number: int) -> np.ndarray[Any, Any]:
    return np.full(1 << 18, number, np.float32)


def jobs() -> list[ferry.Job]:
    return [ferry.to_async(source(number), "torch", copy=True) for number in range(COUNT)]


def numbers(results: list[Any]) -> list[int]:
    return [int(result[0]) for result in results]


def test_a_job_is_a_future() -> None:
    job = ferry.to_async(source(3), "torch", copy=True)
    assert isinstance(job, ferry.Job)
    assert isinstance(job, concurrent.futures.Future)
    assert numbers([job.result()]) == [3]
    assert job.done()
    assert not job.running()
    assert not job.cancelled()
    assert not job.cancel()
    assert job.exception() is None
    assert job.bytes_moved == job.bytes_total == 1 << 20
    assert repr(job) == "<Job done, 1.0 MiB of 1.0 MiB>"


def test_a_share_is_done_at_once() -> None:
    x = source(3)
    job = ferry.to_async(x, "torch")
    assert job.done()
    assert job.bytes_total == 0
    x[0] = 5
    assert job.result()[0] == 5


@pytest.mark.parametrize("make", [lambda: source(3), lambda: {"a": source(3), "b": source(4)}])
def test_a_trace_has_no_trip_of_a_cancelled_job(make: Callable[[], Any]) -> None:
    x, done = make(), 0
    with ferry.trace() as trips:
        while not (job := ferry.to_async(x, "torch", copy=True)).cancel():
            job.result()
            done += 1
        with pytest.raises(ferry.CancelledError):
            job.result()
    assert len(trips) == done * (len(x) if isinstance(x, dict) else 1)


def test_wait() -> None:
    started = jobs()
    done, others = concurrent.futures.wait(started)
    assert done == set(started)
    assert not others
    assert numbers([job.result() for job in started]) == list(range(COUNT))


def test_as_completed() -> None:
    started = jobs()
    found = [int(job.result()[0]) for job in concurrent.futures.as_completed(started)]
    assert sorted(found) == list(range(COUNT))


def test_callbacks() -> None:
    called, seen = threading.Event(), []
    job = ferry.to_async(source(3), "torch", copy=True)
    job.add_done_callback(lambda done: (seen.append(done), called.set()))
    assert called.wait(subprocesses.HANG_SECONDS)
    assert seen == [job]


def test_await_and_wrap_future() -> None:
    async def one(job: ferry.Job) -> Any:
        return await job

    async def main() -> tuple[list[Any], list[Any], list[Any]]:
        return (
            await asyncio.gather(*map(one, jobs())),
            await asyncio.gather(*map(asyncio.wrap_future, jobs())),
            await asyncio.gather(*jobs_as_tasks()),
        )

    def jobs_as_tasks() -> list[asyncio.Future[Any]]:
        return [asyncio.ensure_future(job) for job in jobs()]

    for found in asyncio.run(main()):
        assert numbers(found) == list(range(COUNT))


def test_errors_before_the_start_are_raised() -> None:
    with pytest.raises(ferry.NotATensorError):
        ferry.to_async(object(), "torch")
    with pytest.raises(ferry.InvalidArgumentError, match=r"to_async\(\) does not accept progress"):
        ferry.to_async(source(3), "torch", progress=True)


def test_the_module_is_imported_by_the_first_job() -> None:
    subprocesses.run_program("front/imports_on_demand.py", "job")


def at_exit(case: str) -> str:
    """What a program prints that starts jobs with callbacks and exits."""
    return subprocesses.run_program("front/jobs_at_exit.py", case)


def test_the_exit_waits_for_callbacks() -> None:
    """A callback that runs when the interpreter exits ends before it does."""
    assert at_exit("callback_at_exit") == "called back\n"


def test_the_child_of_a_fork_does_not_wait_for_callbacks_of_its_parent() -> None:
    assert at_exit("fork_beside_a_callback") == "child ended with 0\n"


def test_a_job_is_of_the_process_that_started_it() -> None:
    assert at_exit("job_of_the_parent") == (
        "the job belongs to the process that forked this one"
        "\nhint: start a job in the process that waits for it False False\n"
    )


def test_the_exit_waits_for_jobs_that_callbacks_start() -> None:
    assert at_exit("job_of_a_callback") == "second\n"


def test_an_interrupt_ends_the_wait_at_exit() -> None:
    done = subprocesses.attempt_program("front/jobs_at_exit.py", "interrupt_at_exit")
    assert "KeyboardInterrupt" in done.stderr


def test_sparse_tensors_are_refused() -> None:
    eye = scipy.sparse.eye_array(3).tocsr()
    for x, framework in ((eye, "scipy"), (eye, "torch"), ([eye], "torch")):
        with pytest.raises(ferry.InvalidArgumentError, match="does not accept sparse") as caught:
            ferry.to_async(x, framework)
        assert "ferry.to" in (caught.value.hint or "")


def test_a_job_that_nobody_waits_for_does_not_hold_up_the_exit() -> None:
    at_exit("nobody_waits")
