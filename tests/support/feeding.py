"""Loaders and batches for tests of `ferry.feed`, and waits for what its thread does."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from support.share_counts import soon
from support.subprocesses import HANG_SECONDS

#: The name of the threads that pull from loaders.
THREAD_NAME = "tensorferry feed"


class Pair(NamedTuple):
    """A batch that is a named tuple."""

    x: Any
    y: Any


def feeders() -> list[threading.Thread]:
    """The threads that pull from loaders, in this process."""
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def wait_for_feeders() -> None:
    """Waits until no thread pulls from a loader any more."""
    assert soon(lambda: not feeders()), f"threads that do not end: {feeders()}"


def wait_for_death(references: Iterable[Callable[[], object]]) -> None:
    """Waits until all weak references are dead, without the garbage collector."""
    references = list(references)
    gc.disable()
    try:
        assert soon(lambda: all(one() is None for one in references)), "a batch is alive"
    finally:
        gc.enable()


class Steps:
    """A loader that returns a batch for each `allow()`, and says what it has been asked for.

    A batch that is an exception is raised.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)
        self._allowed = threading.Semaphore(0)
        self._changed = threading.Condition()
        self._requests = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self._changed:
                self._requests += 1
                self._changed.notify_all()
            assert self._allowed.acquire(timeout=HANG_SECONDS)
            try:
                batch = next(self._batches)
            except StopIteration:
                return
            if isinstance(batch, BaseException):
                raise batch
            yield batch
            del batch

    def allow(self, count: int = 1) -> None:
        """Lets the next batches through."""
        self._allowed.release(count)

    @property
    def requests(self) -> int:
        """How many batches the feeder has asked for."""
        with self._changed:
            return self._requests

    def wait_for_requests(self, count: int) -> None:
        """Waits until the feeder has asked for `count` batches."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._requests >= count, HANG_SECONDS), (
                self._requests
            )
