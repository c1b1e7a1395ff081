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
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

ARRAY = "np.arange(1000, dtype='float32')"
VALUES = [float(number) for number in range(1000)]
KILLS = 200
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
    giver.run("context = ferry.trace(); trips = context.__enter__()")
    ticket = giver.publish(ARRAY)
    copies = giver.run("context.__exit__(); answer = [not trip.plan.shares for trip in trips]")
    taker.run("context = ferry.trace(); trips = context.__enter__()")
    assert taker.attach(ticket) == VALUES
    assert taker.run("answer = str(x.device)").lower().count("cpu") == 0
    shared = taker.run("context.__exit__(); answer = [trip.plan.shares for trip in trips]")
    if source in ("torch", "cupy"):
        assert copies == [False]
        # The same memory: what is written here is seen there.
        giver.run("x[0] = 42; torch.cuda.synchronize()" if source == "torch" else "x[0] = 42")
        if source == "cupy":
            giver.run("cupy.cuda.Device().synchronize()")
        assert shared == [True]
        if target in ("torch", "cupy"):
            assert taker.run("answer = float(x[0])") == 42
    taker.run("x = None")
    giver.run("x = ticket = None")


def test_the_consumers_stream_waits_for_the_producers(others):
    giver, taker = others["torch"], others["cupy"]
    giver.run("x = torch.zeros(1 << 20, device='cuda'); torch.cuda.synchronize()")
    # About half a second of work, and a ticket that is there long before.
    code = """
start = time.perf_counter()
torch.cuda._sleep(1_000_000_000)
x.fill_(7)
ticket = ferry.publish(x)
answer = [str(ticket), time.perf_counter() - start]
"""
    ticket, seconds = giver.run(code)
    code = f"""
start = time.perf_counter()
x = ferry.attach({ticket!r}, 'cupy')
attached = time.perf_counter() - start
total = float(x.sum())
answer = [total, attached, time.perf_counter() - start]
"""
    total, attached, waited = taker.run(code)
    assert total == 7 * (1 << 20)
    assert seconds < 0.3, "publishing waited on the host"
    assert attached < 0.3, "attaching waited on the host"
    assert waited > 0.2, "there was nothing to wait for"
    taker.run("x = None")
    giver.run("x = ticket = None")


@pytest.mark.parametrize("last", [name for name in FRAMEWORKS if name in ("jax", "tensorflow")])
def test_three_processes(others, last):
    first, second, third = others["cupy"], others["torch"], others[last]
    ticket = first.publish(ARRAY)
    assert second.attach(ticket) == VALUES
    again = second.run("ticket = ferry.publish(x, copy=False); answer = str(ticket)")
    assert third.attach(again, "copy=False") == VALUES
    for other in (third, second, first):
        other.run("x = ticket = None")


@pytest.mark.parametrize("target", [name for name in FRAMEWORKS if name in ("jax", "tensorflow")])
def test_read_only_memory_cannot_be_written(others, target):
    ticket = others["torch"].publish(ARRAY, "writable=False")
    victim = Worker(target)
    assert victim.attach(ticket, "copy=False") == VALUES
    # By the driver itself, past every framework.
    code = """
cuda = ctypes.CDLL("libcuda.so.1")
capsule = x.__dlpack__()
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
address = ctypes.c_uint64.from_address(get(capsule, b"dltensor")).value
queued = cuda.cuMemsetD8_v2(ctypes.c_uint64(address), 1, ctypes.c_size_t(4))
answer = [queued, cuda.cuCtxSynchronize()]
"""
    assert any(victim.run(code)), "the driver wrote the memory"
    victim.kill()
    reader = Worker()
    assert reader.attach(ticket) == VALUES, "the memory was written"
    reader.end()
    others["torch"].run("x = ticket = None")


def test_our_own_memory_outlives_its_producer():
    producer = Worker()
    ticket = producer.run("""
a = np.arange(1 << 20, dtype="float32")
ticket = ferry.publish(a, device="cuda")
answer = str(ticket)
""")
    mine = ferry.attach(ticket, "torch")
    assert mine.is_cuda
    producer.kill()
    assert torch.equal(mine.cpu(), torch.arange(1 << 20, dtype=torch.float32))
    with pytest.raises(ferry.TicketError, match="has ended"):
        ferry.attach(ticket, "torch")


def test_the_producer_of_framework_memory_is_killed():
    producer, consumer = Worker("torch"), Worker("cupy")
    ticket = producer.publish(ARRAY)
    assert consumer.attach(ticket, "copy=False") == VALUES
    producer.kill()
    with pytest.raises(AssertionError, match="TicketError"):
        consumer.attach(ticket)
    # What it has is let go of, and the process and its GPU go on.
    consumer.run("x = None")
    assert consumer.run("answer = float(cupy.arange(5).sum())") == 10
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
    end = time.monotonic() + HANG_SECONDS
    while abs(torch.cuda.mem_get_info()[0] - memory) >= 16 << 20 and time.monotonic() < end:
        time.sleep(0.05)
    assert abs(torch.cuda.mem_get_info()[0] - memory) < 16 << 20
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


def rounds(next_round: Callable[[int], None]) -> None:
    """Hundreds of rounds, eight at a time: most of a round is a process that starts."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(next_round, range(KILLS)))


def test_killed_consumers_leave_nothing():
    x = torch.rand(16 << 20, device="cuda")
    ticket = ferry.publish(x)
    expected = float(x[5])

    def next_round(number: int) -> None:
        consumer = Worker()
        code = f"x = ferry.attach({str(ticket)!r}, 'numpy'); answer = float(x[5])"
        if number % 2:
            assert consumer.run(code) == expected
        else:
            consumer.tell(code)
            time.sleep(0.005 * number)
        consumer.kill()

    with nothing_is_lost():
        rounds(next_round)
        end = time.monotonic() + HANG_SECONDS
        while ticket.leases and time.monotonic() < end:
            time.sleep(0.01)
        assert ticket.leases == 0
    assert float(x[5]) == expected
    ticket.withdraw()


def test_killed_producers_leave_nothing():
    def next_round(number: int) -> None:
        producer = Worker()
        producer.run("x = np.full(4 << 20, 7, 'float32')")
        # Every other one is killed while it publishes, and the rest while someone has its memory.
        if number % 2:
            producer.tell("ticket = ferry.publish(x, device='cuda')")
            time.sleep(0.005 * number)
            producer.kill()
            return
        ticket = producer.run("ticket = ferry.publish(x, device='cuda'); answer = str(ticket)")
        mine = ferry.attach(ticket, "torch")
        producer.kill()
        assert bool((mine == 7).all()), "the memory went with its producer"
        with pytest.raises(ferry.TicketError):
            ferry.attach(ticket, "torch")

    # The first loads kernels, which stay.
    next_round(0)
    with nothing_is_lost():
        rounds(next_round)


def test_gpus_go_by_their_uuid(others):
    ticket = others["torch"].publish(ARRAY)
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    named = Worker(CUDA_VISIBLE_DEVICES=f"GPU-{uuid.removeprefix('GPU-')}")
    assert named.attach(ticket) == VALUES
    named.end()
    blind = Worker(CUDA_VISIBLE_DEVICES="")
    with pytest.raises(AssertionError, match="UnsupportedError"):
        blind.attach(ticket)
    blind.end()
    others["torch"].run("x = ticket = None")


def test_a_state_dict_goes_with_one_ticket(others):
    giver, taker = others["torch"], others["cupy"]
    code = """
state = {f"layer.{i}": torch.full((100 + i,), float(i), device="cuda") for i in range(1000)}
ticket = ferry.publish(state)
answer = str(ticket)
"""
    ticket = giver.run(code)
    code = f"""
state = ferry.attach({ticket!r}, "cupy", copy=False)
answer = [float(x.sum()) for x in state.values()]
"""
    assert taker.run(code) == [float(i * (100 + i)) for i in range(1000)]
    taker.run("state = x = None")
    giver.run("state = ticket = None")


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_empty_memory_is_published_as_it_is(others, framework):
    x = ferry.empty_shared((3, 4), "float32", framework=framework, device="cuda")
    x[:] = 5
    torch.cuda.synchronize()
    ticket = ferry.publish(x, copy=False, writable=False)
    other = Worker()
    assert other.attach(str(ticket)) == [[5.0] * 4] * 3
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
