"""`ferry.Job`, which `ferry.to_async` returns: a future around a transfer of the native module.

This module is imported when it is first needed, because `concurrent.futures` takes longer to import
than the rest of the package.
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
    """A transfer whose bytes move while the caller goes on.

    A `concurrent.futures.Future`, so `concurrent.futures.wait`, `as_completed` and
    `asyncio.wrap_future` take it, and it can be awaited. The job is done when nothing reads the
    source or writes the result any more. Callbacks run on the thread of the job.

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
        """The bytes that have moved so far."""
        return self._transfer.bytes_moved

    @property
    def bytes_total(self) -> int:
        """The bytes that the whole transfer moves; 0 for a share."""
        return self._transfer.bytes_total

    def running(self) -> bool:
        """Whether the transfer has not ended."""
        return not self.done()

    def cancel(self) -> bool:
        """Cancels the transfer, also a running one; whether that was in time.

        The job ends as cancelled as soon as the blocks that are on their way have arrived. `done()`
        is false until then, and `result()` waits.
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
        """Waits for the end and returns the error of the transfer; None if there is a result.

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

        The await of a cancelled job raises asyncio.CancelledError, as that of any other future.
        """
        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "done" if self.done() else "running"
        return f"<Job {state}, {self._transfer!r}>"

    def _wait(self, timeout: float | None) -> None:
        if not self.done() and (why := self._transfer.why_abandoned()) is not None:
            raise CancelledError("{}\nhint: {}".format(*why))
        seconds = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        # A callback of a cancelled job runs before those who wait are notified, and may come here.
        if not self.done() and not concurrent.futures.wait((self,), seconds).done:
            raise DeadlineError(
                f"the job is not done within {timeout} seconds\nhint: wait longer, or cancel() it"
            )
        if self._cancellation is not None:
            raise CancelledError(self._cancellation)

    def _finish(self, result: T, error: BaseException | None) -> None:
        """Called once, by the native module, when the transfer has ended."""
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
