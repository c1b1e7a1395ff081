"""Starts jobs whose callbacks run on the threads of the jobs, and exits or forks.

A job ends with the GIL held. Its thread gets the GIL only where the main thread waits.
"""

from __future__ import annotations

import array
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from support.cases import case, main

import tensorferry as ferry

sys.setswitchinterval(1000)
begun, main_thread = threading.Event(), threading.main_thread()


def start(callback: Callable[[Any], object]) -> Any:
    """Starts a job of 4 MiB."""
    job = ferry.to_async(array.array("f", bytes(4 << 20)), "numpy", copy=True)
    job.add_done_callback(callback)
    return job


@case
def callback_at_exit() -> None:
    """A callback waits until the main thread has ended, and prints then."""

    def callback(job: object) -> None:
        begun.set()
        main_thread.join()  # until the main thread runs the functions at exit
        print("called back", flush=True)

    start(callback)
    begun.wait()


@case
def fork_beside_a_callback() -> None:
    """A child of a fork exits while a callback of its parent waits."""
    forked = threading.Event()

    def callback(job: object) -> None:
        begun.set()
        forked.wait()

    start(callback)
    begun.wait()
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        forked.set()
        print("child ended with", status)


@case
def job_of_the_parent() -> None:
    """A child of a fork waits for a job of its parent."""
    job = start(lambda job: None)
    child = os.fork()
    if not child:
        try:
            job.result()
        except ferry.CancelledError as error:
            print(error, job.done(), job.cancel(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(job.result()) == 1 << 20


@case
def job_of_a_callback() -> None:
    """A callback starts another job after the main thread has ended."""

    def callback(job: object) -> None:
        begun.set()
        main_thread.join()
        start(lambda job: print("second", flush=True))

    start(callback)
    begun.wait()


@case
def interrupt_at_exit() -> None:
    """A callback that does not return sends SIGINT to the main thread, which waits at exit."""

    def callback(job: object) -> None:
        begun.set()
        main_thread.join()
        # The first signals may come before the wait.
        while not threading.Event().wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    start(callback)
    begun.wait()


@case
def nobody_waits() -> None:
    """Starts twenty jobs and exits."""
    sys.setswitchinterval(0.005)
    for _ in range(20):
        ferry.to_async(array.array("f", bytes(4 << 20)), "numpy", copy=True)


if __name__ == "__main__":
    main()
