"""Exits in the middle of an epoch. Needs NumPy alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from support.cases import case, main

import tensorferry as ferry

is_blocked = threading.Event()
#: The epochs live until the interpreter is finalised.
epochs: list[Any] = []


def blocked_loader() -> Iterator[Any]:
    yield np.zeros(3)
    is_blocked.set()
    threading.Event().wait()


@case
def blocked_for_ever() -> None:
    epochs.append(iter(ferry.feed(blocked_loader(), "numpy")))
    next(epochs[0])
    is_blocked.wait()


@case
def blocked_in_a_call() -> None:
    """A loader inside a system call, without the GIL."""
    reader, _writer = os.pipe()

    def loader() -> Iterator[Any]:
        yield np.zeros(3)
        is_blocked.set()
        os.read(reader, 1)

    epochs.append(iter(ferry.feed(loader(), "numpy")))
    next(epochs[0])
    is_blocked.wait()


@case
def consumer_waits() -> None:
    """A consumer on a daemon thread waits for a loader that blocks."""
    epochs.append(iter(ferry.feed(blocked_loader(), "numpy")))
    threading.Thread(target=lambda: list(epochs[0]), daemon=True).start()
    is_blocked.wait()


@case
def middle_of_an_epoch() -> None:
    """Copies of 8 MiB run when the interpreter exits."""

    def loader() -> Iterator[Any]:
        while True:
            yield np.zeros(1 << 20)

    epochs.append(iter(ferry.feed(loader(), "numpy", prefetch=4)))
    next(epochs[0])


@case
def many_epochs() -> None:
    feed = ferry.feed([np.zeros(1 << 16)] * 100, "numpy", copy=True)
    for _ in range(30):
        epochs.append(iter(feed))
        next(epochs[-1])


if __name__ == "__main__":
    main()
    print("at the end", flush=True)
