"""`ferry.Job`, the future that `ferry.to_async` returns.

This module is imported when it is first needed, because importing `concurrent.futures` takes longer
than importing the rest of the package.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Generator
from typing import Any, TypeVar

from tensorferry._native import DeadlineError, FerryError, _Transfer

__all__ = ["CancelledError", "Job"]

T = TypeVar("T")


class CancelledError(FerryError, concurrent.futures.CancelledError):
    """A transfer was cancelled. Also a concurrent.futures.CancelledError."""


class Job(concurrent.futures.Future[T]):
    """A transfer that runs in the background.

    A `concurrent.futures.Future`, so `concurrent.futures.wait`, `as_completed` and
    `asyncio.wrap_future` accept it, and it can be awaited. The job is done when it no longer reads
    the source or writes the result. Callbacks run on the thread of the job.

    Example:
        >>> job = ferry.to_async(np.arange(3), "torch", copy=True)
        >>> job.result().tolist(), job.bytes_total
        ([0, 1, 2], 24)
    """

    def __init__(self, transfer: _Transfer) -> None:
        super().__init__()
        self._transfer = transfer
        self._cancellation: str | None = None

    @property
    def bytes_moved(self) -> int:
        """The number of bytes moved so far."""
        return self._transfer.bytes_moved

    @property
    def bytes_total(self) -> int:
        """The number of bytes that the transfer moves; 0 if memory is shared."""
        return self._transfer.bytes_total

    def running(self) -> bool:
        """Whether the transfer is in progress."""
        return not self.done()

    def cancel(self) -> bool:
        """Cancels the transfer, even while it runs; returns False if it was already done.

        The job ends when the blocks in flight have arrived. Until then `done()` is False, and
        `result()` waits.
        """
        return self._transfer.cancel()

    def result(self, timeout: float | None = None) -> T:
        """Waits for the result and returns it.

        Args:
            timeout: The seconds to wait; None waits until the job is done.

        Raises:
            DeadlineError: The job is not done within the timeout.
            CancelledError: The transfer was cancelled.
            FerryError: The transfer failed.
        """
        self._wait(timeout)
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits until the job is done and returns its error; None if it has a result.

        Args:
            timeout: The seconds to wait; None waits until the job is done.

        Raises:
            DeadlineError: The job is not done within the timeout.
            CancelledError: The transfer was cancelled.
        """
        self._wait(timeout)
        return super().exception()

    def __await__(self) -> Generator[Any, None, T]:
        """Waits without blocking the event loop; cancelling the task cancels the transfer.

        Awaiting a cancelled job raises asyncio.CancelledError, as for any other future.
        """
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "done" if self.done() else "running"
        return f"<Job {state}, {self._transfer!r}>"

    def _wait(self, timeout: float | None) -> None:
        if not self.done() and (reason := self._transfer.why_abandoned()) is not None:
            raise CancelledError("{}\nhint: {}".format(*reason))
        seconds = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        # A callback of a cancelled job runs before waiting threads are notified, and may call this.
        if not self.done() and not concurrent.futures.wait((self,), seconds).done:
            raise DeadlineError(
                f"the job is not done within {timeout} seconds\nhint: wait longer, or cancel() it"
            )
        if self._cancellation is not None:
            raise CancelledError(self._cancellation)

    def _finish(self, result: T, error: BaseException | None) -> None:
        """Completes the job; the native module calls it once, when the transfer has ended."""
        if error is None:
            self.set_result(result)
        elif isinstance(error, CancelledError):
            self._cancellation = str(error)
            try:
                super().cancel()  # runs the callbacks
            finally:
                self.set_running_or_notify_cancel()
        else:
            self.set_exception(error)


for public in (CancelledError, Job):
    public.__module__ = "tensorferry"
