"""Forks while another thread makes the first call of the process, of each kind, many times.

Each child of this process makes its first call on one thread and forks on another.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import numpy as np
from support.forks import fork, wait

import tensorferry as ferry

array = np.arange(6, dtype=np.float32).reshape(2, 3)


def fail() -> None:
    """Makes a call that raises."""
    try:
        ferry.to(object(), "numpy")
    except ferry.FerryError:
        return
    raise AssertionError("no error")


CALLS: list[Callable[[], object]] = [
    lambda: ferry.to(array, "numpy", copy=True),
    lambda: ferry.to(array, "numpy", copy=np.True_),  # type: ignore[call-overload]
    lambda: ferry.to(array.data, "numpy"),
    lambda: ferry.to({"a": [array, (array,)]}, "numpy", copy=True),
    lambda: str(ferry.plan(array.T, "numpy")),
    fail,
]


def race(call: Callable[[], object]) -> None:
    """Forks children that make the call until a thread has made it."""
    ended = threading.Event()

    def first() -> None:
        call()
        ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    wait(fork(call))
    while not ended.is_set():
        wait(fork(call))
    thread.join()


for call in CALLS:
    for _ in range(40):
        wait(fork(functools.partial(race, call)))
print("out")
