"""Waits for a loader that blocks, and gets SIGINT meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from support.cases import case, main
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

is_interrupted, is_released = threading.Event(), threading.Event()


def on_interrupt(*_arguments: Any) -> None:
    """Raises once, as a user presses the keys once."""
    if not is_interrupted.is_set():
        is_interrupted.set()
        raise KeyboardInterrupt


def send_interrupts() -> None:
    # The first signals may come before the main thread waits.
    while not is_interrupted.wait(0.05):
        os.kill(os.getpid(), signal.SIGINT)


def loader() -> Iterator[Any]:
    send_interrupts()
    assert is_released.wait(HANG_SECONDS)
    for number in range(3):
        yield np.full(3, number)


@case
def interrupt() -> None:
    signal.signal(signal.SIGINT, on_interrupt)
    epoch = iter(ferry.feed(loader(), "numpy"))
    try:
        next(epoch)
    except KeyboardInterrupt:
        assert not is_released.is_set()
        print("interrupted while the loader is blocked")
    is_released.set()
    print("batches", *(batch[0] for batch in epoch))


@case
def not_caught() -> None:
    signal.signal(signal.SIGINT, on_interrupt)
    for _batch in ferry.feed(loader(), "numpy"):
        raise AssertionError("a batch arrived")


if __name__ == "__main__":
    main()
