"""Converts around forks, in the way that the first argument names."""

from __future__ import annotations

import sys
import threading

from support.fork_work import big, work
from support.forks import fork, wait

import tensorferry as ferry


def first_in_the_child() -> None:
    """Children make the first calls; then the parent does."""
    for _ in range(3):
        wait(fork(work))
    work()


def many_children() -> None:
    """Six children work at once."""
    work()
    for child in [fork(work) for _ in range(6)]:
        wait(child)
    work()


def one_child() -> None:
    """The parent works before, and after, a child."""
    work()
    wait(fork(work))
    work()


def amid_copies() -> None:
    """Two threads copy all the time, and children are forked meanwhile."""
    stop = threading.Event()

    def copy() -> None:
        while not stop.is_set():
            ferry.to(big, "numpy", copy=True)
            ferry.to(big.T, "numpy", copy=True)

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        wait(fork(work))
    stop.set()
    for thread in threads:
        thread.join()


CASES = {
    case.__name__: case for case in (first_in_the_child, many_children, one_child, amid_copies)
}

CASES[sys.argv[1]]()
print("out")
