"""GPU memory of one process in another, with a process for each framework."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from gpu.gpu_frameworks import has_gpu
from gpu.worker_process import Worker
from support.share_counts import soon

import tensorferry as ferry

COUNT = 1000
VALUES = [float(number) for number in range(COUNT)]
KILLS = 200
QUICK_KILLS = 16
FRAMEWORKS = [
    name
    for name in ("torch", "cupy", "jax", "tensorflow")
    if importlib.util.find_spec(name) and has_gpu(name)
]


@pytest.fixture(scope="module")
def others() -> Iterator[dict[str, Worker]]:
    found = {name: Worker(name) for name in FRAMEWORKS}
    yield found
    for other in found.values():
        other.end()


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(FRAMEWORKS, 2)))
def test_every_pair(others, source, target):
    giver, taker = others[source], others[target]
    giver.run("begin_trace")
    ticket = giver.run("publish", COUNT)
    published = giver.run("end_trace")
    taker.run("begin_trace")
    assert taker.run("attach", ticket) == VALUES
    assert taker.run("device").lower().count("cpu") == 0
    attached = taker.run("end_trace")
    if source in ("torch", "cupy"):
        assert published == [True]
        # The same memory: what is written here is seen there.
        giver.run("write_first", 42)
        assert attached == [True]
        if target in ("torch", "cupy"):
            assert taker.run("item", 0) == 42
    taker.run("forget")
    giver.run("forget")


def test_the_consumers_stream_waits_for_the_producers(others):
    giver, taker = others["torch"], others["cupy"]
    size = 1 << 20
    # About half a second of work. Where the hosts are slower than that, there is more of it.
    for cycles in (1_000_000_000, 4_000_000_000, 16_000_000_000):
        giver.run("make_zeros", size)
        ticket = giver.run("publish_behind_work", 7, cycles)
        was_busy_when_published = giver.run("is_busy")
        taker.run("attach_unread", ticket)
        was_busy_when_attached = giver.run("is_busy")
        assert taker.run("total") == 7 * size
        taker.run("forget")
        giver.run("forget")
        if was_busy_when_attached:
            break
    assert was_busy_when_published, "publishing waited on the host"
    assert was_busy_when_attached, "attaching waited on the host"


@pytest.mark.parametrize("last", [name for name in FRAMEWORKS if name in ("jax", "tensorflow")])
def test_three_processes(others, last):
    first, second, third = others["cupy"], others["torch"], others[last]
    ticket = first.run("publish", COUNT)
    assert second.run("attach", ticket) == VALUES
    again = second.run("publish_again", copy=False)
    assert third.run("attach", again, copy=False) == VALUES
    for other in (third, second, first):
        other.run("forget")


@pytest.mark.parametrize("target", [name for name in FRAMEWORKS if name in ("jax", "tensorflow")])
def test_read_only_memory_cannot_be_written(others, target):
    ticket = others["torch"].run("publish", COUNT, writable=False)
    victim = Worker(target)
    assert victim.run("attach", ticket, copy=False) == VALUES
    assert any(victim.run("write_by_the_driver")), "the driver wrote the memory"
    victim.kill()
    reader = Worker()
    assert reader.run("attach", ticket) == VALUES, "the memory was written"
    reader.end()
    others["torch"].run("forget")


def test_our_own_memory_outlives_its_producer():
    producer = Worker()
    ticket = producer.run("publish_host_memory", 1 << 20)
    mine = ferry.attach(ticket, "torch")
    assert mine.is_cuda
    producer.kill()
    assert torch.equal(mine.cpu(), torch.arange(1 << 20, dtype=torch.float32))
    with pytest.raises(ferry.TicketError, match="has ended"):
        ferry.attach(ticket, "torch")


def test_the_producer_of_framework_memory_is_killed():
    producer, consumer = Worker("torch"), Worker("cupy")
    ticket = producer.run("publish", COUNT)
    assert consumer.run("attach", ticket, copy=False) == VALUES
    producer.kill()
    with pytest.raises(AssertionError, match="TicketError"):
        consumer.run("attach", ticket)
    # It releases what it has, and the process and its GPU go on.
    consumer.run("forget")
    assert consumer.run("compute") == 10
    consumer.end()


@contextlib.contextmanager
def nothing_is_lost() -> Iterator[None]:
    """GPU memory and descriptors are as before, once the driver has cleaned up after the dead.

    (What PyTorch keeps for later is not lost.)
    """
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    memory, descriptors = torch.cuda.mem_get_info()[0], len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    torch.cuda.empty_cache()
    assert soon(lambda: abs(torch.cuda.mem_get_info()[0] - memory) < 16 << 20)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


@pytest.fixture
def kills(is_quick: bool) -> int:
    return QUICK_KILLS if is_quick else KILLS


def rounds(next_round: Callable[[int], None], count: int) -> None:
    """Runs rounds, eight at a time: most of a round is a process that starts."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(next_round, range(count)))


def test_killed_consumers_leave_nothing(kills):
    x = torch.rand(16 << 20, device="cuda")
    ticket = ferry.publish(x)
    expected = float(x[5])

    def next_round(number: int) -> None:
        consumer = Worker()
        if number % 2:
            consumer.run("attach_unread", str(ticket))
            assert consumer.run("item", 5) == expected
        else:
            # It is killed at any moment: before, while or after it attaches.
            consumer.tell("attach_unread", str(ticket))
            time.sleep(0.005 * number)
        consumer.kill()

    with nothing_is_lost():
        rounds(next_round, kills)
        assert soon(lambda: ticket.leases == 0)
    assert float(x[5]) == expected
    ticket.withdraw()


def test_killed_producers_leave_nothing(kills):
    def next_round(number: int) -> None:
        producer = Worker()
        producer.run("fill", 4 << 20, 7)
        # Every other one is killed at any moment: before, while or after it publishes. The rest are
        # killed while someone has their memory.
        if number % 2:
            producer.tell("publish_filled")
            time.sleep(0.005 * number)
            producer.kill()
            return
        ticket = producer.run("publish_filled")
        mine = ferry.attach(ticket, "torch")
        producer.kill()
        assert bool((mine == 7).all()), "the memory went with its producer"
        with pytest.raises(ferry.TicketError):
            ferry.attach(ticket, "torch")

    # The first loads kernels, which stay.
    next_round(0)
    with nothing_is_lost():
        rounds(next_round, kills)


def test_gpus_go_by_their_uuid(others):
    ticket = others["torch"].run("publish", COUNT)
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    named = Worker(CUDA_VISIBLE_DEVICES=f"GPU-{uuid.removeprefix('GPU-')}")
    assert named.run("attach", ticket) == VALUES
    named.end()
    blind = Worker(CUDA_VISIBLE_DEVICES="")
    with pytest.raises(AssertionError, match="UnsupportedError"):
        blind.run("attach", ticket)
    blind.end()
    others["torch"].run("forget")


def test_a_state_dict_goes_with_one_ticket(others):
    giver, taker = others["torch"], others["cupy"]
    ticket = giver.run("publish_state", 1000)
    assert taker.run("attach_state", ticket) == [float(i * (100 + i)) for i in range(1000)]
    taker.run("forget")
    giver.run("forget")


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_empty_memory_is_published_as_it_is(others, framework):
    x = ferry.empty_shared((3, 4), "float32", framework=framework, device="cuda")
    x[:] = 5
    torch.cuda.synchronize()
    ticket = ferry.publish(x, copy=False, writable=False)
    other = Worker()
    assert other.run("attach", str(ticket)) == [[5.0] * 4] * 3
    other.end()


def test_the_same_process_gets_its_own_memory():
    x = torch.rand(100, device="cuda")
    y = ferry.attach(ferry.publish(x, copy=False), "torch")
    assert y.data_ptr() == x.data_ptr()
    with ferry.publish({"x": x, "y": x[10:20]}, copy=False) as ticket:
        both = ferry.attach(ticket, "cupy")
        assert both["x"].data.ptr == x.data_ptr()
        assert both["y"].data.ptr == x.data_ptr() + 40


def test_memory_of_a_large_pool_is_copied_unless_told_otherwise():
    whole = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    small = whole[:1000]
    plans = {}
    for copy in (None, False):
        with ferry.trace() as trips:
            ticket = ferry.publish(small, copy=copy)
        plans[copy] = trips[0].plan
        assert ferry.attach(ticket, "numpy").sum() == 0
    assert not plans[None].shares
    assert re.search(r"allocation of \d+", str(plans[None]))
    assert plans[False].shares
