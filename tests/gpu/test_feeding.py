"""Feeds on a real GPU: the order of streams both ways, pinned sources, memory, shardings, stats."""

from __future__ import annotations

import functools
import gc
import itertools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from support.share_counts import soon

import tensorferry as ferry

MIB = 1 << 20
# int32 elements: 16 MiB. Their sums are exact.
SIZE = 4 * MIB
BATCHES = 50
NAMED = [name for name in ("torch", "cupy") if name in GPU_FRAMEWORKS]
TARGETS = [name for name in ("torch", "cupy", "jax") if name in GPU_FRAMEWORKS]
# JAX has no streams for its users.
CONSUMERS = [
    *((name, streams) for name in NAMED for streams in ("default", "side", "changing")),
    *([("jax", "default")] if "jax" in GPU_FRAMEWORKS else []),
]
needs_jax = pytest.mark.skipif("jax" not in GPU_FRAMEWORKS, reason="JAX is not here")


@functools.cache
def arrays(size: int = SIZE) -> list[np.ndarray]:
    """More than are prefetched, so that a batch that comes too early has another sum."""
    generator = np.random.default_rng(27)
    return [generator.integers(-(1 << 30), 1 << 30, size, np.int32) for _ in range(8)]


def cycled(count: int, size: int = SIZE) -> list[np.ndarray]:
    return list(itertools.islice(itertools.cycle(arrays(size)), count))


def sums(batches: list[np.ndarray]) -> list[int]:
    by_array = {id(array): int(array.sum(dtype=np.int64)) for array in batches}
    return [by_array[id(array)] for array in batches]


def make_streams(name: str, kind: str) -> list[Any]:
    """The streams of the consumer, one for each batch in turn; None is the default one."""
    if kind == "default":
        return [None]
    count = 1 if kind == "side" else 3
    if name == "torch":
        return [torch.cuda.Stream() for _ in range(count)]
    import cupy

    return [cupy.cuda.Stream(non_blocking=True) for _ in range(count)]


def entered(name: str, stream: Any) -> AbstractContextManager[Any]:
    """A block in which the stream is the current one of the framework."""
    if stream is None:
        return nullcontext()
    return torch.cuda.stream(stream) if name == "torch" else stream


def spin(name: str, milliseconds: float) -> None:
    """Keeps the current stream of torch or CuPy busy."""
    cycles = int(milliseconds * 1.7e6)
    if name == "torch":
        torch.cuda._sleep(cycles)
        return
    import cupy

    # `ExternalStream(0)` would be a new stream.
    handle = cupy.cuda.get_current_stream().ptr
    stream = torch.cuda.ExternalStream(handle) if handle else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(cycles)


@functools.cache
def _jax_late_sum():
    import jax
    import jax.numpy as jnp

    def late_sum(x, zeros, rounds):
        # The sum needs the result of the loop, and so reads the batch after it.
        zeros = jax.lax.fori_loop(0, rounds, lambda _, y: jnp.sin(y) * 0, zeros)
        return (x + zeros[0].astype(x.dtype)).sum(dtype=jnp.int64)

    compiled = jax.jit(late_sum, static_argnums=2)
    zeros = jax.device_put(np.zeros(SIZE, np.float32), jax.devices("gpu")[0])
    return lambda x, rounds: compiled(x, zeros, rounds)


def late_sum(name: str, batch: Any, milliseconds: float) -> Any:
    """The sum of a batch, queued behind work that takes so long; a tensor of the framework."""
    if name == "jax":
        # 16 MiB read and written take about 10 microseconds.
        return _jax_late_sum()(batch, int(milliseconds * 100))
    spin(name, milliseconds)
    return batch.sum()


def wait(name: str) -> None:
    GPU_FRAMEWORKS[name].wait()
    torch.cuda.synchronize()


@pytest.mark.parametrize("prefetch", [1, 2, 4])
@pytest.mark.parametrize(("target", "streams"), CONSUMERS)
def test_a_slow_reader_keeps_its_batch_while_later_ones_arrive(target, streams, prefetch):
    """The consumer queues the reader, drops the batch and goes on without waiting."""
    found, addresses = [], []
    batches = cycled(BATCHES)
    own_streams = itertools.cycle(make_streams(target, streams))
    epoch = iter(ferry.feed(batches, target, device="cuda", prefetch=prefetch))
    for stream in own_streams:
        with entered(target, stream):
            batch = next(epoch, None)
            if batch is None:
                break
            assert GPU_FRAMEWORKS[target].on_gpu(batch)
            addresses.append(GPU_FRAMEWORKS[target].address(batch))
            found.append(late_sum(target, batch, 3))
            del batch
    wait(target)
    assert [int(total) for total in found] == sums(batches)
    # JAX keeps what it reads until it has read it, so that all batches may lie side by side.
    is_reused = len(set(addresses)) < BATCHES
    assert is_reused or target == "jax", "the test proves nothing: no memory was used again"


@pytest.mark.parametrize("size", [1000, 80_000, 400_000, SIZE, 4 * SIZE])
@pytest.mark.parametrize(("target", "streams"), CONSUMERS)
def test_a_batch_has_its_values_when_the_consumer_reads_it_at_once(target, streams, size):
    """For each transfer path. The stream of the consumer waits for the upload."""
    batches = cycled(10, size)
    own_streams = make_streams(target, streams)
    epoch = iter(ferry.feed(batches, target, device="cuda"))
    found = []
    for number in range(len(batches)):
        with entered(target, own_streams[number % len(own_streams)]):
            batch = next(epoch)
            assert batch.shape == (size,)
            found.append(batch.astype("int64").sum() if target == "jax" else batch.sum())
    assert next(epoch, None) is None
    wait(target)
    assert [int(total) for total in found] == sums(batches)


@pytest.mark.parametrize("target", TARGETS)
def test_pinned_sources_are_not_packed_again(target):
    from torch.utils.data import DataLoader, TensorDataset

    pinned = torch.from_numpy(arrays()[0]).pin_memory()
    path = ferry.plan(pinned, target, device="cuda").transfer_path
    assert "from pinned memory" in path
    assert "not pinned" in ferry.plan(arrays()[0], target, device="cuda").transfer_path

    values = torch.from_numpy(np.stack(cycled(6)))
    labels = torch.arange(6)
    loader = DataLoader(TensorDataset(values, labels), batch_size=4, pin_memory=True)
    for batch in loader:
        assert batch[0].is_pinned()
    with ferry.trace() as trips:
        fed = list(ferry.feed(loader, target, device="cuda"))
    assert [len(y) for _, y in fed] == [4, 2]
    host = GPU_FRAMEWORKS[target].host
    assert np.array_equal(np.concatenate([host(x) for x, _ in fed]), values.numpy())
    assert np.array_equal(np.concatenate([host(y) for _, y in fed]), labels.numpy())
    paths = [trip.plan.transfer_path for trip in trips if trip.bytes_moved > MIB]
    assert len(paths) == 2
    assert all("from pinned memory" in path for path in paths), paths


def allocated(name: str) -> int:
    """The bytes of the GPU that are in use. A feed does not use the frameworks' allocators."""
    gc.collect()
    wait(name)
    free, total = torch.cuda.mem_get_info()
    return total - free


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_that_is_left_frees_its_memory(target):
    for batch in ferry.feed(cycled(3), target, device="cuda"):
        late_sum(target, batch, 1)
        del batch
    before = allocated(target)
    for batch in ferry.feed(cycled(BATCHES), target, device="cuda", prefetch=4):
        late_sum(target, batch, 1)
        assert allocated(target) > before
        break
    del batch
    assert soon(lambda: allocated(target) <= before)


def generated(count: int, settings: list[tuple[int, int]]) -> Iterator[torch.Tensor]:
    """Batches whose values arrive late, made on the GPU by the feeder's thread."""
    for number in range(count):
        settings.append((threading.get_ident(), torch.cuda.current_device()))
        x = torch.zeros(SIZE, dtype=torch.int32, device="cuda")
        spin("torch", 2)
        yield x.add_(number + 1)


def rewritten(count: int) -> Iterator[torch.Tensor]:
    """One buffer on the GPU, which is written again for each batch."""
    x = torch.zeros(SIZE, dtype=torch.int32, device="cuda")
    for number in range(count):
        spin("torch", 2)
        yield x.fill_(number + 1)


@pytest.mark.parametrize("loader", ["new memory", "one buffer"])
@pytest.mark.parametrize(("target", "streams"), CONSUMERS)
def test_batches_that_are_on_the_gpu_already(target, streams, loader):
    count, settings = 20, []
    source = generated(count, settings) if loader == "new memory" else rewritten(count)
    own_streams = itertools.cycle(make_streams(target, streams))
    epoch = iter(ferry.feed(source, target))
    found = []
    for stream in own_streams:
        with entered(target, stream):
            batch = next(epoch, None)
            if batch is None:
                break
            assert GPU_FRAMEWORKS[target].on_gpu(batch)
            found.append(late_sum(target, batch, 1))
            del batch
    wait(target)
    assert [int(total) for total in found] == [SIZE * (number + 1) for number in range(count)]
    for thread, device in settings:
        assert thread != threading.get_ident()
        assert device == torch.cuda.current_device()


@pytest.fixture
def sharding():
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices("gpu")[:1]), ("data",))
    return NamedSharding(mesh, PartitionSpec("data"))


@needs_jax
class TestShardingOfOneGpu:
    def test_of_a_tensor(self, sharding):
        x = arrays()[0].reshape(1024, -1)
        for source in (x, torch.from_numpy(x), torch.from_numpy(x).cuda()):
            y = ferry.to(source, "jax", device=sharding)
            assert y.sharding == sharding
            assert np.array_equal(np.asarray(y), x)

    def test_of_a_tree_with_a_type(self, sharding):
        tree = {"x": np.arange(12.0).reshape(4, 3), "y": [np.arange(4)]}
        for options in ({}, {"dtype": "float32"}):
            found = ferry.to(tree, "jax", device=sharding, **options)
            for y, x in ((found["x"], tree["x"]), (found["y"][0], tree["y"][0])):
                assert y.sharding == sharding
                assert y.dtype == (x.dtype if not options else np.float32)
                assert np.array_equal(np.asarray(y), x)

    def test_of_a_feed(self, sharding):
        batches = [(x.reshape(16, -1), np.arange(16) + n) for n, x in enumerate(cycled(10))]
        found = []
        with ferry.feed(batches, "jax", device=sharding, dtype=(None, "int32")) as fed:
            for x, y in fed:
                assert x.sharding == y.sharding == sharding
                assert x.dtype == y.dtype == np.int32
                found.append((late_sum("jax", x.reshape(-1), 1), y))
        for (total, y), (x, labels) in zip(found, batches, strict=True):
            assert int(total) == x.sum(dtype=np.int64)
            assert np.array_equal(np.asarray(y), labels)


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "cupy"])
def test_a_device_for_each_part_of_a_batch(target):
    batches = [(x, {"label": np.arange(4) + n}) for n, x in enumerate(cycled(5, 400_000))]
    count = 0
    for x, other in ferry.feed(batches, target, device=("cuda", "cpu")):
        assert GPU_FRAMEWORKS[target].on_gpu(x)
        assert not GPU_FRAMEWORKS[target].on_gpu(other["label"])
        assert np.array_equal(GPU_FRAMEWORKS[target].host(x), batches[count][0])
        assert np.array_equal(np.asarray(other["label"]), batches[count][1]["label"])
        count += 1
    assert count == 5


@pytest.mark.parametrize("target", TARGETS)
def test_the_verdict_on_a_loop_that_computes(target):
    """The loop queues its work and does not wait, so the GPU holds up the transfers."""
    late_sum(target, ferry.to(arrays()[0], target, device="cuda"), 5)  # compiles
    feed = ferry.feed(cycled(150), target, device="cuda")
    for batch in feed:
        late_sum(target, batch, 5)
        del batch
    wait(target)
    stats = feed.stats()
    assert stats.batches == 150
    assert stats.bytes == 150 * 4 * SIZE
    assert stats.verdict.startswith("the consumer is the bottleneck"), stats


@pytest.mark.parametrize("target", TARGETS)
def test_the_verdict_on_a_loader_that_is_slow(target):
    """It waits for an event of the GPU for each batch, and the loop does nothing."""

    def loader() -> Iterator[np.ndarray]:
        for array in cycled(20):
            with torch.cuda.stream(torch.cuda.Stream()):
                spin("torch", 20)
                torch.cuda.current_stream().synchronize()
            yield array

    feed = ferry.feed(loader(), target, device="cuda")
    for _ in feed:
        pass
    assert feed.stats().verdict.startswith("the loader is the bottleneck"), feed.stats()


@needs_jax
def test_settings_of_the_consumer_hold_for_the_loader():
    import jax

    gpu, seen = jax.devices("gpu")[0], []

    def loader() -> Iterator[Any]:
        for number in range(3):
            x = jax.numpy.arange(4) + number
            seen.append((x.device.platform, x.dtype.name))
            yield x

    for device, has_x64 in ((gpu, True), (jax.devices("cpu")[0], False)):
        seen.clear()
        with jax.default_device(device), jax.enable_x64(has_x64):
            found = [np.asarray(x).tolist() for x in ferry.feed(loader(), "jax")]
        assert found == [[number, number + 1, number + 2, number + 3] for number in range(3)]
        assert seen == [(device.platform, "int64" if has_x64 else "int32")] * 3
