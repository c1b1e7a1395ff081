"""`feed.stats()`: counts, and what the loop waited for."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from support import subprocesses
from support.feeding import Steps
from support.share_counts import soon

import tensorferry as ferry


def values(number: int) -> np.ndarray:
    return np.full(1000, number, np.float32)


def test_before_the_first_batch() -> None:
    feed = ferry.feed([values(0)], "torch")
    stats = feed.stats()
    assert isinstance(stats, ferry.FeedStats)
    assert (stats.batches, stats.bytes, stats.seconds) == (0, 0, 0)
    assert (stats.loader_seconds, stats.transfer_seconds) == (0, 0)
    assert stats.verdict == "no batch yet"
    assert "no batch yet" in repr(feed)
    assert "list" in repr(feed)


@pytest.mark.parametrize("copy", [True, None])
def test_counts(copy: bool | None) -> None:
    feed = ferry.feed([{"x": values(0), "y": values(1), "n": 2}] * 3, "torch", copy=copy)
    epoch = iter(feed)
    next(epoch)
    assert feed.stats().batches == 1
    list(epoch)
    list(feed)
    stats = feed.stats()
    assert stats.batches == 6
    assert stats.bytes == (6 * 2 * 4000 if copy else 0)
    assert f"6 batches, {stats.bytes} bytes moved" in repr(stats)
    assert "6 batches" in repr(feed)
    assert stats.verdict in repr(feed)


def test_bytes_are_those_of_the_copies() -> None:
    """A cast writes other bytes than it reads; sparse tensors and numbers do not count."""
    feed = ferry.feed([(values(0), values(1))], "torch", dtype=("float64", None))
    list(feed)
    assert feed.stats().bytes == ferry.plan(values(0), "torch", dtype="float64").bytes_moved


def test_times_are_consistent() -> None:
    feed = ferry.feed((values(number) for number in range(50)), "torch")
    for _ in feed:
        stats = feed.stats()
        assert stats.seconds > 0
        assert stats.loader_seconds >= 0
        assert stats.transfer_seconds >= 0
        assert stats.loader_seconds + stats.transfer_seconds <= stats.seconds * (1 + 1e-9)


def test_batches_that_were_not_taken_do_not_count() -> None:
    feed = ferry.feed([values(0)] * 5, "torch", prefetch=4)
    for _ in feed:
        break
    assert feed.stats().batches == 1


VERDICTS = [
    ((10.0, 8.1, 1.0), "the loader is the bottleneck: 81% of the time"),
    ((10.0, 1.0, 6.0), "the transfer is the bottleneck: 60% of the time"),
    ((10.0, 1.0, 1.0), "the consumer is the bottleneck: 80% of the time"),
    ((2.0, 2.0, 0.0), "the loader is the bottleneck: 100% of the time"),
    ((3.0, 0.0, 0.0), "the consumer is the bottleneck: 100% of the time"),
    ((0.0, 0.0, 0.0), "no batch yet"),
]


@pytest.mark.parametrize(("seconds", "verdict"), VERDICTS)
def test_verdicts(seconds: tuple[float, float, float], verdict: str) -> None:
    stats = ferry.FeedStats(5, 100, *seconds)
    assert stats.verdict == verdict
    assert "5 batches, 100 bytes" in str(stats)
    assert verdict in str(stats)


def test_stats_do_not_change() -> None:
    feed = ferry.feed([values(0)] * 2, "torch")
    epoch = iter(feed)
    next(epoch)
    before = feed.stats()
    with pytest.raises(AttributeError):
        before.batches = 2
    next(epoch)
    assert before.batches == 1
    assert feed.stats().batches == 2


def is_waiting(epoch: Any) -> bool:
    """Whether the consumer waits for the queue. The feeder does not: it is in the loader."""
    with epoch._queue._changed:
        return len(epoch._queue._changed._waiters) > 0


def test_a_loader_that_the_consumer_waits_for() -> None:
    """The loader returns each batch only when the consumer waits for it."""
    count = 20
    steps = Steps(values(number) for number in range(count))
    feed = ferry.feed(steps, "torch")
    epoch = iter(feed)
    found: list[float] = []
    consumer = threading.Thread(target=lambda: found.extend(float(one[0]) for one in epoch))
    consumer.start()
    for number in range(count):
        steps.wait_for_requests(number + 1)
        assert soon(lambda: is_waiting(epoch)), "the consumer does not wait"
        steps.allow()
    steps.wait_for_requests(count + 1)
    steps.allow()
    consumer.join(subprocesses.HANG_SECONDS)
    assert found == list(range(count))
    stats = feed.stats()
    assert stats.batches == count
    assert 0 < stats.loader_seconds <= stats.seconds


def test_a_consumer_that_the_loader_waits_for() -> None:
    """Batches that are ready before they are asked for cost the loop no wait for the loader."""
    feed = ferry.feed([values(number) for number in range(4)], "torch", prefetch=4)
    epoch = iter(feed)
    queue = epoch._queue
    assert soon(lambda: len(queue._entries) == 4), "the queue is not full"
    at_start = feed.stats().loader_seconds  # of `iter(loader)`
    for _ in range(4):
        next(epoch)
    stats = feed.stats()
    assert (stats.batches, stats.loader_seconds) == (4, at_start)
    assert list(epoch) == []


def test_counts_of_epochs_on_several_threads() -> None:
    feed = ferry.feed([values(0)] * 50, "torch", copy=True)
    threads = [threading.Thread(target=lambda: list(feed)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(subprocesses.HANG_SECONDS)
    assert (feed.stats().batches, feed.stats().bytes) == (200, 200 * 4000)
