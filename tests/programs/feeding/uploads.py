"""Feeds CuPy on the fake GPU, whose work is done late, so that a missing order shows."""

from __future__ import annotations

import itertools
from typing import Any

import cupy
import numpy as np
from support.cases import case, main
from support.fake_gpu import driver
from support.feeding import wait_for_feeders
from support.gpu_transfers import MIB, Array, calls, numbers

import tensorferry as ferry

OUT_OF_MEMORY = 2
# Below the staging buffers, within them, and through the ring.
SIZES = (1000, MIB // 2, 4 * MIB)


def batches(size: int, count: int = 24) -> list[Array]:
    return [numbers(size // 4) for _ in range(count)]


def consume(feed: ferry.Feed, streams: list[Any]) -> list[Any]:
    """Queues a copy of each batch on its stream, and drops the batch before the copy is done."""
    copies = []
    epoch = iter(feed)
    for stream in itertools.cycle(streams):
        with stream:
            batch = next(epoch, None)
            if batch is None:
                break
            copies.append(batch.queue_copy())
            del batch
    return copies


def check(copies: list[Any], sources: list[Array], streams: list[Any]) -> None:
    for stream in streams:
        stream.synchronize()
    assert len(copies) == len(sources)
    for copy, source in zip(copies, sources, strict=True):
        np.testing.assert_array_equal(copy.get(), source)


@case
def order() -> None:
    """The consumer's streams, one or several, read a batch before its memory is used again."""
    for size, count, prefetch in itertools.product(SIZES, (1, 3), (1, 2, 4)):
        streams = [cupy.cuda.Stream() for _ in range(count)]
        sources = batches(size)
        check(consume(ferry.feed(sources, "cupy", prefetch=prefetch), streams), sources, streams)


@case
def casts() -> None:
    """A cast on the GPU is done when the consumer gets the batch."""
    streams = [cupy.cuda.Stream(), cupy.cuda.Stream()]
    sources: list[dict[str, Any]] = [{"x": x, "y": [x[:100]]} for x in batches(MIB)]
    epoch = iter(ferry.feed(sources, "cupy", dtype={"x": "float64", "y": None}))
    for stream, source in zip(itertools.cycle(streams), sources, strict=False):
        with stream:
            batch = next(epoch)
            copies = batch["x"].queue_copy(), batch["y"][0].queue_copy()
            del batch
            np.testing.assert_array_equal(copies[0].get(), source["x"].astype("float64"))
            np.testing.assert_array_equal(copies[1].get(), source["y"][0])
    assert next(epoch, None) is None


@case
def gpu_sources() -> None:
    """Batches that are on the GPU already: shared from a list, copied from a generator."""
    streams = [cupy.cuda.Stream(), cupy.cuda.Stream()]
    values = batches(MIB)
    for make in (list, iter):
        sources = [cupy.asarray(value) for value in values]
        check(consume(ferry.feed(make(sources), "cupy"), streams), values, streams)


@case
def no_memory() -> None:
    """Without memory for blocks, the allocator of the framework provides it."""
    streams = [cupy.cuda.Stream() for _ in range(3)]
    sources = batches(4 * MIB)
    driver.testdriver_fail_for_good(b"cuMemAllocAsync", OUT_OF_MEMORY)
    cupy.reuses_across_streams = False
    before = len(cupy.allocated_on)
    copies = consume(ferry.feed(sources, "cupy"), streams)
    check(copies, sources, streams)
    # Each batch, and the copy of each.
    assert len(cupy.allocated_on) == before + 2 * len(sources)


@case
def release() -> None:
    """Blocks are used again, and freed when the loop is left, also by batches that live on."""
    stream = cupy.cuda.Stream()
    sources = batches(4 * MIB, 40)
    check(consume(ferry.feed(sources, "cupy"), [stream]), sources, [stream])
    # The queue, the consumer, and two that wait for the consumer's work; one more in a race.
    assert calls("cuMemAllocAsync") <= 6, calls("cuMemAllocAsync")
    epoch = iter(ferry.feed(sources, "cupy"))
    batch = next(epoch)
    del epoch
    wait_for_feeders()
    np.testing.assert_array_equal(batch.get(), sources[0])
    del batch
    assert calls("cuMemFreeAsync") == calls("cuMemAllocAsync")


if __name__ == "__main__":
    main()
