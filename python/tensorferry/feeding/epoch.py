"""One pass over a loader: the thread that fills a queue of jobs, and the iterator that empties it.

The feeder refers to the queue and not to the epoch. An epoch that nobody uses any more is therefore
released, and closes the queue.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from time import perf_counter
from types import TracebackType
from typing import Any

from tensorferry._native import InvalidArgumentError, _BatchMemory, _BatchOptions, _StartedBatch
from tensorferry.feeding.stats import WaitTimes
from tensorferry.feeding.thread_settings import ThreadSettings

__all__ = ["EXIT_WAIT_SECONDS", "Epoch", "Feeder"]

#: How often a thread that waits looks whether the queue was closed. A signal handler or the garbage
#: collector can close it on the thread that is about to wait, and then nobody is notified.
CLOSED_CHECK_SECONDS = 0.1
#: How long the exit of the interpreter waits for feeders, which may be in a framework's code.
EXIT_WAIT_SECONDS = 1.0


class _Entry:
    """One batch in the queue; or an error of the loader, or the end of the loader."""

    __slots__ = (
        "batch",
        "bytes_moved",
        "error",
        "free_at",
        "is_ready",
        "prepared_at",
        "pulled_at",
        "started",
    )

    def __init__(
        self, started: _StartedBatch | None = None, error: BaseException | None = None
    ) -> None:
        self.started = started
        self.error = error
        #: Whether the consumer can take it.
        self.is_ready = started is None
        self.batch: Any = None
        self.bytes_moved = 0
        #: When the loader returned it, its job was prepared, and the memory for it was free.
        self.pulled_at = self.prepared_at = self.free_at = 0.0

    def convert(self) -> None:
        """Moves the bytes on this thread."""
        if self.started is None:
            return
        self.started.run()
        job = self.started.job
        try:
            self.batch = job.result()
        except BaseException as error:
            self.error = error.with_traceback(None)
        transfer = job._transfer
        self.bytes_moved = transfer.bytes_total
        self.free_at = self.prepared_at + transfer.seconds_queued

    @property
    def is_last(self) -> bool:
        """Whether no batch can follow."""
        return self.started is None or self.error is not None


class _Queue:
    """A bounded queue of batches between a feeder and a consumer."""

    def __init__(self, prefetch: int) -> None:
        self.process = os.getpid()
        self.is_closed = False
        self._entries: deque[_Entry] = deque()
        self._prefetch = prefetch
        self.memory = _BatchMemory(prefetch)
        # Reentrant: the garbage collector may close an epoch at any point.
        self._changed = threading.Condition(threading.RLock())

    def wait_for_room(self) -> bool:
        """Waits until another batch may be pulled. False if none is wanted."""
        with self._changed:
            while not self.is_closed and len(self._entries) >= self._prefetch:
                self._changed.wait(CLOSED_CHECK_SECONDS)
            return not self.is_closed

    def put(self, entry: _Entry) -> None:
        """Adds a batch that is about to be converted, an error or the end."""
        with self._changed:
            self._entries.append(entry)
            if entry.is_ready:
                self._changed.notify_all()
        if self.is_closed:
            self._release()

    def set_ready(self, entry: _Entry) -> None:
        """Lets the consumer take an entry, whose conversion has ended."""
        with self._changed:
            entry.is_ready = True
            self._changed.notify_all()

    def take(self) -> _Entry:
        """Waits until the first entry is ready, and removes it. A closed queue is at its end."""
        with self._changed:
            while not self.is_closed:
                entry = self._entries[0] if self._entries else None
                if entry is not None and entry.is_ready:
                    self._entries.popleft()
                    self._changed.notify_all()
                    return entry
                self._changed.wait(CLOSED_CHECK_SECONDS)
            return _Entry()

    def close(self) -> None:
        """Releases the batches, cancels their jobs and tells the feeder to stop."""
        # In the child of a fork, the lock may be held by a thread that the child does not have.
        if self.is_closed or self.process != os.getpid():
            return
        self.is_closed = True
        with self._changed:
            self._changed.notify_all()
        self.memory.close()
        self._release()

    def _release(self) -> None:
        """Removes and cancels all entries. May run inside of another method of this thread."""
        while True:
            try:
                entry = self._entries.popleft()
            except IndexError:
                return
            if entry.started is not None:
                entry.started.job.cancel()


class _Source:
    """Holds the iterator of an epoch, to which the feeder has a weak reference."""

    __slots__ = ("__weakref__", "iterator")

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator


class Feeder(threading.Thread):
    """Pulls batches and converts them, until the loader ends or fails or the queue is closed.

    It refers to the iterator only while it pulls. A loader that refers to its own epoch can
    therefore be released.
    """

    def __init__(self, source: _Source, options: _BatchOptions, queue: _Queue) -> None:
        super().__init__(name="tensorferry feed", daemon=True)
        self.queue = queue
        self._source = weakref.ref(source)
        self._batch_options = options
        self._settings = ThreadSettings()

    def run(self) -> None:
        """The function of the thread."""
        try:
            self._settings.run(self._fill)
        except BaseException as error:
            self.queue.put(_Entry(error=error))
        finally:
            del self._batch_options, self._settings

    def _fill(self) -> None:
        # Nothing here refers to a batch while the loader runs.
        while self.queue.wait_for_room():
            try:
                entry = self._start_next()
            except StopIteration:
                entry = _Entry()
            except BaseException as error:
                # The consumer raises it. The frames of this thread would keep the batch alive.
                entry = _Entry(error=error.with_traceback(_skip(error.__traceback__, 2)))
            self.queue.put(entry)
            # A loader may write into the same memory again, so this comes before the next pull.
            entry.convert()
            self.queue.set_ready(entry)
            if entry.is_last:
                return
            del entry

    def _start_next(self) -> _Entry:
        source = self._source()
        if source is None:
            return _Entry()
        batch = next(source.iterator)
        del source
        pulled_at = perf_counter()
        try:
            entry = _Entry(self._batch_options.start(batch, self.queue.memory))
        except StopIteration as error:
            raise RuntimeError("a conversion raised StopIteration") from error
        entry.pulled_at = pulled_at
        entry.prepared_at = perf_counter()
        return entry


def _skip(traceback: TracebackType | None, count: int) -> TracebackType | None:
    """The traceback without its first frames."""
    for _ in range(count):
        traceback = traceback.tb_next if traceback is not None else None
    return traceback


class Epoch(Iterator[Any]):
    """The iterator of a `for` loop over a feed. Its end closes the queue."""

    def __init__(
        self,
        iterator: Iterator[Any],
        options: _BatchOptions,
        prefetch: int,
        times: WaitTimes,
        used_up_error: Exception | None,
        makes_tuples: bool,
    ) -> None:
        self._queue = _Queue(prefetch)
        self._times = times
        # Raised if the loader yields no batch.
        self._used_up_error = used_up_error
        self._makes_tuples = makes_tuples
        self._source: _Source | None = _Source(iterator)
        self._last_at = perf_counter()
        self.feeder = Feeder(self._source, options, self._queue)
        _FEEDERS.add(self.feeder)
        self.feeder.start()

    def __next__(self) -> Any:
        queue = self._queue
        if queue.process != os.getpid():
            raise InvalidArgumentError(
                "the epoch belongs to the process that forked this one"
                "\nhint: iterate over the feed in the process that uses it"
            )
        asked_at = perf_counter()
        entry = queue.take()
        ready_at = perf_counter()
        if entry.error is not None:
            self.close()
            try:
                raise entry.error
            finally:
                del entry  # The error refers to this frame, which would refer to the error.
        if entry.started is None:
            self.close()
            if self._used_up_error is not None:
                raise self._used_up_error
            raise StopIteration
        self._used_up_error = None
        batch = entry.started.order_for_consumer(entry.batch)
        # A transfer that waits for its memory waits for work that the consumer has queued.
        pulled_at = max(entry.pulled_at, asked_at)
        waited = max(entry.free_at, asked_at) - max(entry.prepared_at, asked_at)
        self._times.add(
            entry.bytes_moved,
            ready_at - self._last_at,
            pulled_at - asked_at,
            max(ready_at - pulled_at - waited, 0.0),
        )
        self._last_at = ready_at
        return tuple(batch) if self._makes_tuples and type(batch) is list else batch

    def close(self) -> None:
        """Ends the epoch and releases its batches and its iterator."""
        self._queue.close()
        self._source = None

    def __del__(self) -> None:
        if hasattr(self, "_queue"):
            self._queue.close()


#: The threads that may be running.
_FEEDERS: weakref.WeakSet[Feeder] = weakref.WeakSet()


def _stop_feeders() -> None:
    """Stops the feeders before frameworks are finalised. A blocked loader is abandoned."""
    feeders = [feeder for feeder in _FEEDERS if feeder.queue.process == os.getpid()]
    for feeder in feeders:
        feeder.queue.close()
    deadline = perf_counter() + EXIT_WAIT_SECONDS
    for feeder in feeders:
        feeder.join(max(deadline - perf_counter(), 0.0))


atexit.register(_stop_feeders)
