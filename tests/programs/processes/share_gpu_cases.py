"""Publishes GPU memory on the fake driver; the first argument names the case."""

from __future__ import annotations

import os
import sys
from typing import Any

import cupy
import numpy as np
from programs.processes import gpu_peer
from programs.processes import share_peer as host_peer
from support.fake_gpu import driver, on_gpu
from support.peer_processes import Peer, PeerError

import tensorferry as ferry

NUMBERS = np.arange(12, dtype="float32").reshape(3, 4)


def told(x: Any, **options: Any) -> tuple[ferry.Ticket, Any]:
    """Publishes a tensor: the ticket and the plan."""
    with ferry.trace() as trips:
        ticket = ferry.publish(x, **options)
    return ticket, trips[0].plan


def shared_as_it_is() -> None:
    """The consumer has the same memory, whole or a view of it, and the host a copy."""
    x = on_gpu(NUMBERS)
    ticket, plan = told(x)
    assert plan.shares, plan
    assert plan.device == "cuda:0", plan
    with Peer() as other:
        other.run(gpu_peer.attach, str(ticket), "cupy", copy=False)
        assert other.run(gpu_peer.values) == NUMBERS.tolist()
        assert ticket.leases == 1
        # The same memory.
        other.run(gpu_peer.fill, 9)
        assert x.get().tolist() == [[9] * 4] * 3
        # A view of it, and the host, which needs a copy.
        ticket = ferry.publish({"row": x[1], "all": x}, copy=False)
        assert other.run(host_peer.fetch_all_values, str(ticket), "numpy")["row"] == [9] * 4


def read_only() -> None:
    """Memory that cannot be protected is copied; memory of ours can be protected."""
    x = on_gpu(NUMBERS)
    ticket, plan = told(x, writable=False)
    assert not plan.shares, plan
    assert "read-only" in str(plan), plan
    try:
        ferry.publish(x, writable=False, copy=False)
        raise AssertionError("it was shared")
    except ferry.CopyRequiredError as error:
        assert error.hint is not None
        assert "ferry.empty" in error.hint
    y = ferry.empty_shared((2, 2), "float32", framework="cupy", device="cuda")
    y.set(np.ones((2, 2), "float32"))
    ticket = ferry.publish(y, writable=False, copy=False)
    with Peer() as other:
        assert other.run(host_peer.fetch_values, str(ticket)) == [[1, 1], [1, 1]]


def between_host_and_gpu() -> None:
    """A ticket for the other device leads to a copy there."""
    ticket, plan = told(on_gpu(NUMBERS), device="cpu")
    assert not plan.shares, plan
    assert plan.device == "cpu", plan
    with Peer() as other:
        assert other.run(host_peer.fetch_values, str(ticket)) == NUMBERS.tolist()
        ticket, plan = told(np.arange(5, dtype="float32"), device="cuda", dtype="float64")
        assert not plan.shares, plan
        assert plan.device == "cuda:0", plan
        other.run(gpu_peer.attach, str(ticket), "cupy")
        assert other.run(gpu_peer.values) == [0, 1, 2, 3, 4]
        assert other.run(gpu_peer.name_of_dtype) == "float64"


def small_view_of_a_large_allocation() -> None:
    """It is copied, unless a copy is forbidden."""
    large = cupy.empty((100 << 20,), np.uint8)
    x = large[5:10]
    _, plan = told(x)
    assert not plan.shares, plan
    assert "100 MiB" in str(plan), plan
    ticket, plan = told(x, copy=False)
    assert plan.shares
    assert ferry.attach(ticket, "cupy").data.ptr == large.data.ptr + 5


def published_again() -> None:
    """A consumer publishes it again, and the producer attaches what it has already."""
    x = on_gpu(NUMBERS)
    ticket, _ = told(x)
    with Peer() as middle, Peer() as last:
        middle.run(gpu_peer.attach, str(ticket), "cupy")
        again = middle.run(gpu_peer.publish_got)
        assert last.run(host_peer.fetch_values, again) == NUMBERS.tolist()
        # And back where it came from, which has it already.
        assert ferry.attach(again, "cupy").data.ptr == x.data.ptr


def unseen_gpu() -> None:
    """A process without a driver cannot attach it."""
    ticket, _ = told(on_gpu(NUMBERS))
    with Peer(LD_LIBRARY_PATH="/nowhere") as blind:
        try:
            blind.run(host_peer.fetch_values, str(ticket))
            raise AssertionError("it was attached")
        except PeerError as error:
            assert error.kind == "UnsupportedError", error


def driver_that_refuses(call: str) -> None:
    """A call of the driver fails once; nothing is left behind, and the next time it works."""
    x = on_gpu(NUMBERS)
    before = len(os.listdir("/proc/self/fd"))
    driver.testdriver_fail(call.encode(), 0, 999)
    try:
        ferry.publish(x, writable=False if call != "cuIpcGetMemHandle" else None)
        raise AssertionError("it was published")
    except ferry.FrameworkError:
        pass
    assert len(os.listdir("/proc/self/fd")) <= before
    ticket, _ = told(x)
    assert ferry.attach(ticket, "numpy").sum() == 66


def new_memory() -> None:
    """New memory of a GPU can be filled, published and attached."""
    for empty in (ferry.empty_shared, ferry.empty_aligned):
        y: Any = empty((3, 4), "float16", framework="cupy", device="cuda")
        assert isinstance(y, cupy.ndarray)
        assert y.shape == (3, 4)
        assert str(y.dtype) == "float16"
        y.set(np.full((3, 4), 2, "float16"))
        ticket = ferry.publish(y, copy=False)
        assert ferry.attach(ticket, "numpy").tolist() == [[2] * 4] * 3
    # CuPy has no other place.
    assert isinstance(ferry.empty_shared(3, "int32", framework="cupy"), cupy.ndarray)


CASES = {
    case.__name__: case
    for case in (
        shared_as_it_is,
        read_only,
        between_host_and_gpu,
        small_view_of_a_large_allocation,
        published_again,
        unseen_gpu,
        driver_that_refuses,
        new_memory,
    )
}

if __name__ == "__main__":
    CASES[sys.argv[1]](*sys.argv[2:])
