"""`ferry.feed`: batches of any loader, converted before the training step asks for them."""

from __future__ import annotations

import itertools
import operator
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from time import perf_counter
from types import FunctionType, TracebackType
from typing import Any

from tensorferry._native import InvalidArgumentError, _BatchOptions
from tensorferry.feeding.epoch import EXIT_WAIT_SECONDS, Epoch, Feeder
from tensorferry.feeding.loaders import keeps_its_batches
from tensorferry.feeding.stats import FeedStats, WaitTimes

__all__ = ["Feed", "FeedStats", "feed"]


def feed(
    loader: Iterable[Any],
    framework: Any,
    *,
    device: Any = None,
    dtype: Any = None,
    prefetch: int = 2,
    copy: bool | None = None,
    batch_type: type[tuple[Any, ...]] | None = None,
) -> Feed:
    """Converts the batches of a loader on another thread, before the loop asks for them.

    One thread pulls batches from the loader and converts them. It stops while `prefetch` batches
    are ready. Leaves of a batch that are not tensors pass unchanged beside tensors.

    Args:
        loader: Any iterable of tensors or trees of tensors: a DataLoader of PyTorch, a dataset of
            tf.data or Grain, a list, a generator. A dataset of Hugging Face whose rows hold no
            tensor is fed through `ferry.arrow.batches`.
        framework: The framework of the batches, by name or as its module.
        device: As for `to`, also a jax.sharding.Sharding; or a tree of devices with the structure
            of the upper part of a batch.
        dtype: As for `to`, or such a tree of types. None changes nothing.
        prefetch: The number of batches that are converted in advance, at least 1.
        copy: None copies memory that the loader may write again, and otherwise shares where `to`
            does; True always copies; False shares, or raises CopyRequiredError.
        batch_type: tuple makes a tuple of a batch that is a list, as Keras takes them. None changes
            nothing.

    Returns:
        A Feed, which is iterable. Each `for` loop over it is an epoch.

    Raises:
        FerryError: An argument is invalid. What `to` would raise is raised by the loop, at the
            batch that it is about.

    Example:
        >>> batches = [(np.ones((2, 3)), np.arange(2)), (np.zeros((1, 3)), np.arange(1))]
        >>> for x, y in ferry.feed(batches, "torch", dtype=("float32", None)):
        ...     print(tuple(x.shape), x.dtype, y.dtype)
        (2, 3) torch.float32 torch.int64
        (1, 3) torch.float32 torch.int64
    """
    return Feed(loader, framework, device, dtype, prefetch, copy, batch_type)


class Feed:
    """The batches of a loader, converted in advance; `ferry.feed` makes it.

    Each `for` loop is an epoch with a thread of its own. The end of the loop, for whatever reason,
    stops the thread and releases the batches that were not used. As a context manager it does so
    at the end of the block.

    Example:
        >>> with ferry.feed([np.ones(2), np.zeros(2)], "torch") as batches:
        ...     print(len(batches), [batch.sum().item() for batch in batches])
        2 [2.0, 0.0]
        >>> batches.stats().batches
        2
    """

    def __init__(
        self,
        loader: Any,
        framework: Any,
        device: Any,
        dtype: Any,
        prefetch: Any,
        copy: bool | None,
        batch_type: Any,
    ) -> None:
        if isinstance(loader, Mapping):
            raise InvalidArgumentError(
                f"the loader is of type {type(loader).__name__}, and its iteration returns its keys"
                "\nhint: pass [x] if it is one batch, or the loader among its values"
            )
        if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
            raise InvalidArgumentError(
                f"the loader is of type {type(loader).__name__}, which cannot be iterated"
                "\nhint: pass a DataLoader, a dataset, a list or a generator of batches"
            )
        if not hasattr(prefetch, "__index__") or isinstance(prefetch, bool) or prefetch < 1:
            raise InvalidArgumentError(
                f"prefetch must be an integer from 1 on, not {prefetch!r}"
                "\nhint: leave it out for 2; for no thread, use ferry.to in the loop"
            )
        if batch_type is not None and batch_type is not tuple:
            raise InvalidArgumentError(
                f"batch_type must be tuple or None, not {batch_type!r}"
                "\nhint: write batch_type=tuple, or change the batches in the loop"
            )
        self._loader = loader
        self._makes_tuples = batch_type is tuple
        self._prefetch = min(operator.index(prefetch), sys.maxsize)
        self._options = _BatchOptions(
            loader, framework, device, dtype, copy, keeps_its_batches(loader)
        )
        self._times = WaitTimes()
        self._epochs: weakref.WeakSet[Epoch] = weakref.WeakSet()
        self._feeders: weakref.WeakSet[Feeder] = weakref.WeakSet()
        self._was_iterator = False

    def __iter__(self) -> Epoch:
        """Starts an epoch, once the thread of an epoch that was left has returned from the loader.

        Raises:
            InvalidArgumentError: The loader is an iterator, which an earlier epoch has used.
        """
        used_up_error = self._used_up_error() if self._was_iterator else None
        if used_up_error is not None and not _may_restart(self._loader):
            raise used_up_error
        for feeder in list(self._feeders):
            if feeder.queue.is_closed and feeder is not threading.current_thread():
                feeder.join()
        begun_at = perf_counter()
        iterator = iter(self._loader)
        self._times.add_start(perf_counter() - begun_at)
        self._was_iterator = iterator is self._loader
        if not isinstance(self._loader, Iterable):
            # Python goes by index until IndexError, which a dataset with a length may not raise.
            count = operator.length_hint(self._loader, sys.maxsize)
            iterator = itertools.islice(iterator, count)
        epoch = Epoch(
            iterator, self._options, self._prefetch, self._times, used_up_error, self._makes_tuples
        )
        self._epochs.add(epoch)
        self._feeders.add(epoch.feeder)
        return epoch

    def _used_up_error(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the loader is of type {type(self._loader).__name__}, which can be iterated once, "
            "and an earlier epoch has used it"
            "\nhint: make a new feed for each epoch, or pass a loader that can start again, "
            "such as a list or a DataLoader"
        )

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """The number of batches of an epoch, if the loader tells it."""
        return len(self._loader)

    def stats(self) -> FeedStats:
        """The number of batches so far, and what the loop waited for.

        Example:
            >>> batches = ferry.feed([np.ones(2)], "torch")
            >>> batches.stats().verdict
            'no batch yet'
        """
        return self._times.stats()

    def close(self) -> None:
        """Stops the epochs that are running and releases their batches. Can be called twice.

        Waits up to a second for their threads to return from the loader.
        """
        for epoch in list(self._epochs):
            epoch.close()
        deadline = perf_counter() + EXIT_WAIT_SECONDS
        for feeder in list(self._feeders):
            if feeder is not threading.current_thread() and feeder.queue.process == os.getpid():
                feeder.join(max(deadline - perf_counter(), 0.0))

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        stats = self._times.stats()
        return f"<Feed of {type(self._loader).__name__}, {stats.batches} batches, {stats.verdict}>"


def _may_restart(loader: Any) -> bool:
    """Whether a loader that is its own iterator has an `__iter__` in Python, which may reset it."""
    return isinstance(getattr(type(loader), "__iter__", None), FunctionType)


for public in (Feed, feed):
    public.__module__ = "tensorferry"
