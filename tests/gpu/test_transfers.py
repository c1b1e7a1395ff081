"""Bytes between a real GPU and the host: every size and road, jobs, and memory of the caller's."""

from __future__ import annotations

import asyncio
import gc
import threading

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from support.share_counts import soon

import tensorferry as ferry

MIB = 1 << 20
SIZES = [1, 1000, 64 << 10, 300 << 10, MIB, 3 * MIB + 4, 5 * MIB, 64 * MIB, 300 * MIB]


def numbers(count: int) -> torch.Tensor:
    return torch.randn(count, device="cuda")


@pytest.mark.parametrize("name", GPU_FRAMEWORKS)
@pytest.mark.parametrize("size", SIZES)
def test_both_ways(name, size):
    host = np.random.default_rng(size).standard_normal(max(size // 4, 1), dtype=np.float32)
    for _ in range(3):
        x = ferry.to(host, name, device="cuda")
        assert GPU_FRAMEWORKS[name].on_gpu(x)
        assert np.array_equal(ferry.to(x, "numpy"), host)
        kept = ferry.to(x, "torch", device="cpu")
        assert not kept.is_cuda
        assert np.array_equal(kept.numpy(), host)


@pytest.mark.parametrize("dtype", [None, "float16", "float64", "uint8"])
@pytest.mark.parametrize("shape", [(300, 200), (3000, 5000), (2, 3, 2000, 1000)])
def test_views(shape, dtype):
    base = torch.rand(shape, device="cuda") * 100
    host = base.cpu().numpy()
    for view, there in (
        (base.transpose(-1, -2), host.swapaxes(-1, -2)),
        (base[..., 1::3], host[..., 1::3]),
        (base[1:], host[1:]),
        (base[..., : shape[-1] // 2], host[..., : shape[-1] // 2]),
    ):
        expected = ferry.to(np.ascontiguousarray(there), "numpy", dtype=dtype)
        for _ in range(2):
            assert np.array_equal(ferry.to(view, "numpy", dtype=dtype), expected)
        up = ferry.to(there, "torch", device="cuda", dtype=dtype)
        assert np.array_equal(up.cpu().numpy(), expected)


def test_a_copy_that_is_under_way_keeps_its_values():
    """A result of ours is pinned, and torch copies from pinned memory without waiting."""
    one, two = numbers(16 * MIB), numbers(16 * MIB)
    ferry.to(one, "numpy")
    for _ in range(10):
        result = torch.from_numpy(ferry.to(one, "numpy"))
        assert result.is_pinned()
        place = result.data_ptr()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            copy = result.cuda(non_blocking=True)
        del result
        again = ferry.to(two, "numpy")
        assert again.ctypes.data == place
        assert np.array_equal(again, two.cpu().numpy())
        del again
        side.synchronize()
        assert torch.equal(copy, one)


@pytest.mark.parametrize("size", [1 << 12, 256 << 10])
def test_while_another_thread_captures(size):
    """As with `t.cpu()`: neither the capture nor the transfer fails. (Large ones may.)"""
    x, host = numbers(size // 4), np.random.default_rng(2).standard_normal(size // 4, np.float32)
    expected = x.cpu().numpy()
    there = torch.empty_like(x)
    out = torch.zeros(1000, device="cuda")
    begun, over, wrong = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.wait()
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                if not np.array_equal(ferry.to(x, "numpy"), expected):
                    wrong.append("down")
                ferry.to(host, "torch", out=there)
        except Exception as error:
            wrong.append(repr(error))
        over.set()

    thread = threading.Thread(target=work)
    thread.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.add_(1)
        begun.set()
        over.wait()
        out.add_(1)
    thread.join()
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert not wrong
    assert (out == 2).all()
    assert np.array_equal(there.cpu().numpy(), host)


def test_work_that_is_pending():
    for size in (1 << 12, MIB, 8 * MIB):
        for number in range(5):
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                x = torch.zeros(size, device="cuda")
                torch.cuda._sleep(20_000_000)
                x.fill_(number)
                job = ferry.to_async(x, "numpy")
                found = ferry.to(x, "numpy")
            assert (found == number).all()
            assert (job.result() == number).all()


def test_a_transfer_that_waits_holds_up_no_other():
    """Into memory of the caller's: a recycled result waits for all that is queued."""
    x, y = numbers(16 * MIB), numbers(16 * MIB)
    one, two = (np.empty(16 * MIB, np.float32) for _ in range(2))
    ferry.to(y, "numpy", out=two)
    torch.cuda.synchronize()

    def overtakes() -> bool:
        """Whether a second transfer ends while the stream of the first one is busy."""
        busy = torch.cuda.Event()
        with torch.cuda.stream(torch.cuda.Stream()):
            # About a second.
            torch.cuda._sleep(2_000_000_000)
            busy.record()
            x.add_(1)
            job = ferry.to_async(x, "numpy", out=one)
        ferry.to(y, "numpy", out=two)
        was_early = not busy.query()
        assert np.array_equal(job.result(), x.cpu().numpy())
        assert np.array_equal(two, y.cpu().numpy())
        return was_early

    # A host that is busy with other work may be late. One transfer of many has to be early.
    assert soon(overtakes)


def test_jobs_leave_others_alone():
    """While a job moves its bytes, this thread computes."""
    x = numbers(256 * MIB)
    expected = x.cpu()

    def is_seen_in_the_middle() -> bool:
        """Whether this thread, which runs Python code, sees a job in the middle."""
        # Into memory that is not pinned, so that the bytes move in chunks.
        out = np.empty(x.shape, np.float32)
        job, moved = ferry.to_async(x, "numpy", out=out), set()
        while not job.done():
            moved.add(job.bytes_moved)
        assert torch.equal(torch.from_numpy(job.result()), expected)
        assert job.bytes_moved == job.bytes_total == x.nbytes
        return any(0 < number < x.nbytes for number in moved)

    # Other load may keep this thread from running. One job of many has to be seen.
    assert soon(is_seen_in_the_middle)

    async def both():
        return await asyncio.gather(*(wait(ferry.to_async(x[:MIB], "numpy")) for _ in range(4)))

    async def wait(job):
        return await job

    for found in asyncio.run(both()):
        assert np.array_equal(found, x[:MIB].cpu().numpy())


def test_a_job_is_called_off():
    x = numbers(512 * MIB)
    out = np.empty(512 * MIB, np.float32)

    def is_called_off() -> bool:
        """Whether a job was cancelled before it was done."""
        job = ferry.to_async(x, "numpy", out=out)
        if not job.cancel():
            return False
        with pytest.raises(ferry.CancelledError):
            job.result()
        assert job.bytes_moved < job.bytes_total
        return True

    assert soon(is_called_off)
    assert np.array_equal(ferry.to(x[:MIB], "numpy"), x[:MIB].cpu().numpy())


def test_into_a_file_with_little_memory(tmp_path):
    x = numbers(128 * MIB)
    out = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=x.shape)
    before = ferry.memory_stats()
    seen = []
    ferry.to(x, "numpy", out=out, budget=4 * MIB, progress=lambda moved, total: seen.append(moved))
    after = ferry.memory_stats()
    held = after.used_bytes + after.idle_bytes - before.used_bytes - before.idle_bytes
    assert held <= 4 * MIB
    assert seen[-1] == x.nbytes
    assert np.array_equal(out, x.cpu().numpy())
    back = torch.empty_like(x)
    assert ferry.to(out, "torch", out=back) is back
    assert torch.equal(back, x)


def test_what_is_held_is_bounded_and_given_back():
    gc.collect()
    ferry.empty_cache()
    x = numbers(64 * MIB)
    for _ in range(3):
        ferry.to(x, "numpy")
    assert 0 < ferry.memory_stats().pinned_bytes <= ferry.memory_stats().limit_bytes
    assert ferry.empty_cache() > 0
    assert ferry.memory_stats().pinned_bytes == 0
    assert np.array_equal(ferry.to(x, "numpy"), x.cpu().numpy())


def test_many_threads_at_once():
    tensors = [numbers(MIB * size) for size in (1, 2, 9, 30)]
    expected = [x.cpu().numpy() for x in tensors]
    wrong = []

    def work(index: int) -> None:
        for _ in range(10):
            found = ferry.to(tensors[index], "numpy")
            again = ferry.to(expected[index], "torch", device="cuda")
            if not np.array_equal(found, expected[index]) or not torch.equal(again, tensors[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
