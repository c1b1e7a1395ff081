"""What is copied and what is shared, and that nothing keeps a batch longer than needed."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import tensorflow as tf
import torch
import torch.utils.data
from support.feeding import Steps, feeders, wait_for_death, wait_for_feeders
from support.introspect import INSPECTORS, check_tensor
from support.memory import aligned
from support.share_counts import soon

import tensorferry as ferry

TARGETS = ("numpy", "torch", "jax", "tensorflow")
COUNT = 6
LENGTH = 1 << 12


def values(number: int) -> np.ndarray:
    return np.full(LENGTH, number, np.float32)


def read_only(buffer: np.ndarray) -> np.ndarray:
    view = buffer.view()
    view.flags.writeable = False
    return view


# How a loader may return a buffer of NumPy that it writes again, and how to find the values.
REUSED: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[Any], Any]]] = {
    "NumPy": (lambda buffer: buffer, lambda batch: batch),
    "a view": (lambda buffer: buffer[:], lambda batch: batch),
    "a read-only view": (read_only, lambda batch: batch),
    "PyTorch": (torch.from_numpy, lambda batch: batch),
    "buffer protocol": (memoryview, lambda batch: batch),
    "a tree": (lambda buffer: {"a": [buffer]}, lambda batch: batch["a"][0]),
    "a table": (
        lambda buffer: pa.table(
            {"a": pa.Array.from_buffers(pa.float32(), LENGTH, [None, pa.py_buffer(buffer)])}
        ),
        lambda batch: batch["a"],
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", REUSED)
def test_a_loader_may_reuse_its_buffer(kind: str, target: str) -> None:
    wrap, find = REUSED[kind]
    # Aligned, so that every framework could share it.
    buffer = aligned(LENGTH, np.float32)

    def loader() -> Iterator[Any]:
        for number in range(COUNT):
            buffer[:] = number
            yield wrap(buffer)

    for prefetch in (1, 3):
        found = list(ferry.feed(loader(), target, prefetch=prefetch))
        buffer[:] = -1
        assert len(found) == COUNT
        for number, batch in enumerate(found):
            check_tensor(target, find(batch), values(number))


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> np.ndarray:
        return values(index)


class OneBuffer:
    """A collate function that fills one buffer again and again."""

    def __init__(self) -> None:
        self.buffer = torch.empty(LENGTH)

    def __call__(self, samples: list[np.ndarray]) -> torch.Tensor:
        return self.buffer.copy_(torch.from_numpy(samples[0]))


class Loader(torch.utils.data.DataLoader):
    """A subclass that returns its batches in one buffer, as some that pin memory do."""

    def __iter__(self) -> Any:
        buffer = torch.empty(LENGTH)
        for batch in super().__iter__():
            yield buffer.copy_(batch[0])


@pytest.mark.parametrize(
    "loader",
    [torch.utils.data.DataLoader(Numbers(), collate_fn=OneBuffer()), Loader(Numbers())],
    ids=["collate function", "subclass"],
)
def test_a_data_loader_may_reuse_its_buffer(loader: torch.utils.data.DataLoader) -> None:
    found = list(ferry.feed(loader, "torch"))
    assert [int(batch[0]) for batch in found] == list(range(COUNT))


@pytest.mark.parametrize("target", TARGETS)
def test_the_batches_of_a_list_are_shared_where_to_shares(target: str) -> None:
    batches = [aligned(LENGTH, np.float32) for _ in range(COUNT)]
    shares = ferry.plan(batches[0], target).shares
    assert shares or target in ("jax", "tensorflow")
    for kind in (list, tuple):
        feed = ferry.feed(kind(batches), target)
        for batch, source in zip(feed, batches, strict=True):
            assert (INSPECTORS[target].address(batch) == source.ctypes.data) == shares
        assert (feed.stats().bytes == 0) == shares


def test_the_batches_of_the_default_collate_function_are_shared() -> None:
    """A DataLoader stacks into new memory, and the batch of PyTorch is that memory."""
    feed = ferry.feed(torch.utils.data.DataLoader(Numbers(), 2), "numpy")
    with ferry.trace() as trips:
        found = list(feed)
    assert [int(batch[1, 0]) for batch in found] == [1, 3, 5]
    assert feed.stats().bytes == 0
    assert len(trips) == 3
    assert all(trip.shares for trip in trips)


@pytest.mark.parametrize("target", TARGETS)
def test_copy_true_copies_what_could_be_shared(target: str) -> None:
    source = aligned(LENGTH, np.float32)
    feed = ferry.feed([source, source], target, copy=True)
    first, second = feed
    addresses = {INSPECTORS[target].address(one) for one in (first, second)}
    assert len(addresses | {source.ctypes.data}) == 3
    assert feed.stats().bytes == 2 * source.nbytes


def test_copy_false_shares_what_a_loader_returns() -> None:
    sources = [aligned(LENGTH, np.float32) for _ in range(COUNT)]
    found = list(ferry.feed((source for source in sources), "torch", copy=False))
    assert [batch.data_ptr() for batch in found] == [source.ctypes.data for source in sources]


def test_copy_false_raises_at_the_batch_that_needs_a_copy() -> None:
    epoch = iter(ferry.feed([values(0), values(1)[::-1], values(2)], "torch", copy=False))
    check_tensor("torch", next(epoch), values(0))
    with pytest.raises(ferry.CopyRequiredError):
        next(epoch)
    assert next(epoch, None) is None


@pytest.mark.parametrize("source", ["jax", "tensorflow"])
def test_tensors_that_cannot_be_written_are_shared(source: str) -> None:
    """Also from a generator: nobody can write their memory again."""
    make = {"jax": jnp.array, "tensorflow": tf.constant}[source]
    sources = [make(values(number)) for number in range(COUNT)]
    for target in ("numpy", source):
        feed = ferry.feed((one for one in sources), target)
        for number, batch in enumerate(feed):
            address = INSPECTORS[source].address(sources[number])
            assert INSPECTORS[target].address(batch) == address
            assert (batch is sources[number]) == (target == source)
        assert feed.stats().bytes == 0


class Tracked:
    """A loader of new arrays that remembers weak references to them, and whether it was closed."""

    def __init__(self, count: int = 1000) -> None:
        self.count = count
        self.batches: list[weakref.ref[Any]] = []
        self.is_closed = False

    def __iter__(self) -> Iterator[Any]:
        try:
            for number in range(self.count):
                yield self.make(number)
        finally:
            self.is_closed = True

    def make(self, number: int) -> np.ndarray:
        batch = values(number)
        self.batches.append(weakref.ref(batch))
        return batch

    @property
    def live(self) -> int:
        return sum(reference() is not None for reference in self.batches)


def take_three(feed: ferry.Feed) -> list[weakref.ref[Any]]:
    """Weak references to the first batches of an epoch that is left then by `break`."""
    taken = []
    for batch in feed:
        taken.append(weakref.ref(batch))
        if len(taken) == 3:
            break
    return taken


def leave_by_break(feed: ferry.Feed) -> list[weakref.ref[Any]]:
    return take_three(feed)


def leave_by_error(feed: ferry.Feed) -> list[weakref.ref[Any]]:
    taken = []

    def run() -> None:
        for batch in feed:
            taken.append(weakref.ref(batch))
            if len(taken) == 3:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        run()
    del caught
    return taken


def leave_by_close(feed: ferry.Feed) -> list[weakref.ref[Any]]:
    epoch = iter(feed)
    taken = [weakref.ref(next(epoch)) for _ in range(3)]
    feed.close()
    feed.close()
    assert next(epoch, "the end") == "the end"
    return taken


def leave_by_close_of_the_epoch(feed: ferry.Feed) -> list[weakref.ref[Any]]:
    epoch = iter(feed)
    taken = [weakref.ref(next(epoch)) for _ in range(3)]
    epoch.close()
    assert list(epoch) == []
    return taken


def leave_by_with(feed: ferry.Feed) -> list[weakref.ref[Any]]:
    with feed as batches:
        assert batches is feed
        epoch = iter(batches)
        taken = [weakref.ref(next(epoch)) for _ in range(3)]
    assert next(epoch, "the end") == "the end"
    return taken


def leave_by_del(feed: ferry.Feed) -> list[weakref.ref[Any]]:
    epoch = iter(feed)
    taken = [weakref.ref(next(epoch)) for _ in range(3)]
    del epoch
    return taken


EARLY_EXITS = {
    function.__name__: function
    for function in (
        leave_by_break,
        leave_by_error,
        leave_by_close,
        leave_by_close_of_the_epoch,
        leave_by_with,
        leave_by_del,
    )
}


@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("name", EARLY_EXITS)
def test_leaving_early_frees_everything(name: str, target: str) -> None:
    loader = Tracked()
    feed = ferry.feed(loader, target, prefetch=3)
    used = ferry.memory_stats().used_bytes
    taken = EARLY_EXITS[name](feed)
    wait_for_death([*taken, *loader.batches])
    assert soon(lambda: not feeders()), "the feeder runs"
    # The loader itself is released too, with what it has in its frames.
    assert soon(lambda: loader.is_closed), "the loader was not closed"
    assert soon(lambda: ferry.memory_stats().used_bytes <= used), "memory of batches is used"
    assert len(loader.batches) <= 3 + 3 + 1
    # Another epoch starts anew.
    assert int(next(iter(feed))[0]) == 0


def test_closing_does_not_wait_for_a_loader_that_blocks() -> None:
    steps = Steps([values(0), values(1)])
    feed = ferry.feed(steps, "torch")
    epoch = iter(feed)
    steps.allow()
    check_tensor("torch", next(epoch), values(0))
    steps.wait_for_requests(2)
    feed.close()
    (feeder,) = feeders()
    assert feeder.is_alive()
    assert list(epoch) == []
    # The batch that comes too late is dropped, and the next one is not asked for.
    steps.allow()
    assert soon(lambda: not feeders()), "the feeder runs"
    assert steps.requests == 2


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_a_batch_dies_with_the_last_reference_of_the_consumer(target: str) -> None:
    """Also in the middle of the epoch, while the feeder is at work or waits."""
    epoch = iter(ferry.feed(Tracked(20), target))
    for number in range(20):
        batch = next(epoch)
        assert int(batch[0]) == number
        dead = weakref.ref(batch)
        del batch
        # The feeder may be in a callback of the job for a moment.
        wait_for_death([dead])


def test_the_feeder_has_no_batch_while_the_loader_blocks() -> None:
    """Neither the batch of the loader, which was copied, nor the result that the consumer took."""
    loader = Tracked()
    steps = Steps(map(loader.make, range(3)))
    epoch = iter(ferry.feed(steps, "torch"))
    steps.allow()
    steps.wait_for_requests(2)
    # The result is in the queue, and its source is dead.
    wait_for_death(loader.batches)
    batch = next(epoch)
    dead = weakref.ref(batch)
    del batch
    wait_for_death([dead])
    steps.allow(3)
    assert [int(batch[0]) for batch in epoch] == [1, 2]


def test_a_shared_batch_dies_while_the_loader_blocks() -> None:
    loader = Tracked()
    steps = Steps(map(loader.make, range(3)))
    epoch = iter(ferry.feed(steps, "numpy", copy=False))
    steps.allow()
    batch = next(epoch)
    steps.wait_for_requests(2)
    assert loader.live == 1
    del batch
    wait_for_death(loader.batches)
    steps.allow(3)
    assert len(list(epoch)) == 2


@pytest.mark.parametrize("prefetch", [1, 4])
def test_the_number_of_live_batches_is_bounded(prefetch: int) -> None:
    loader, most = Tracked(500), 0
    for batch in ferry.feed(loader, "numpy", prefetch=prefetch, copy=False):
        most = max(most, loader.live)
        del batch
    # Those that are ready, one at the consumer, and one at the feeder.
    assert most <= prefetch + 2
    wait_for_death(loader.batches)


def test_memory_does_not_grow() -> None:
    feed = ferry.feed(Tracked(300), "torch", dtype="float64")

    def run() -> None:
        feed._loader.batches.clear()
        for batch in feed:
            assert batch.dtype == torch.float64
            del batch

    run()
    used = ferry.memory_stats().used_bytes
    tracemalloc.start()
    try:
        run()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(3):
            run()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert soon(lambda: ferry.memory_stats().used_bytes <= used), "memory of batches is used"
    # A reference of 8 bytes for each of 900 batches would be seen.
    assert after - before < 8 * 900


def test_a_loader_that_refers_to_its_own_epoch_is_released() -> None:
    class Data:
        def __init__(self) -> None:
            self.epoch = iter(ferry.feed(self.load(), "numpy"))

        def load(self) -> Iterator[np.ndarray[Any, Any]]:
            while True:
                yield np.ones(2)

    data = Data()
    next(data.epoch)
    died = weakref.ref(data)
    del data

    def is_released() -> bool:
        gc.collect()
        return died() is None

    assert soon(is_released), "the loader is alive"
    wait_for_feeders()


def test_sparse_tensors_of_a_loader_that_reuses_its_memory() -> None:
    matrix = scipy.sparse.csr_matrix(np.eye(3))

    def loader() -> Iterator[Any]:
        for number in range(4):
            matrix.data[:] = number
            yield matrix

    found = list(ferry.feed(loader(), "torch"))
    assert [float(x.to_dense()[0, 0]) for x in found] == [0, 1, 2, 3]
