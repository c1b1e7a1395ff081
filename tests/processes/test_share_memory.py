"""Whose memory it is, who may write it, and what is copied."""

from __future__ import annotations

import errno
import signal

import numpy as np
import pytest
import torch
from programs.processes import share_peer as there
from support.peer_processes import Peer, PeerError
from support.refusals import refused

import tensorferry as ferry

import jax.numpy as jnp  # isort: skip
import paddle  # isort: skip
import tensorflow as tf  # isort: skip


def shared(*values: float) -> np.ndarray:
    x = ferry.empty_shared(len(values), "float32")
    x[:] = values
    return x


# ----- whose memory


def test_writes_are_seen_both_ways(peer: Peer) -> None:
    x = shared(1, 2, 3)
    ticket = ferry.publish(x)
    for framework in ("numpy", "torch"):
        peer.run(there.attach, str(ticket), framework)
        assert peer.run(there.values) == x.tolist()
        x[0] += 10
        assert peer.run(there.values) == x.tolist()
        peer.run(there.write, 1, 77)
        assert x[1] == 77
        x[1] = 2


def test_views_of_shared_memory_are_shared(peer: Peer) -> None:
    x = ferry.empty_shared((4, 6), "int32")
    x[:] = np.arange(24).reshape(4, 6)
    for view in (x.T, x[1:3, ::2], x[::-1, ::-1], x[2, 3], x[:, :, None], x.view("int16")):
        view = np.asarray(view) if isinstance(view, np.ndarray) else x[2:3, 3]
        ticket = ferry.publish(view, copy=False)
        peer.run(there.attach, str(ticket), copy=False)
        array, strides = peer.run(there.array_and_strides)
        assert np.array_equal(array, view)
        assert strides == view.strides


def test_ordinary_memory_is_a_copy(peer: Peer) -> None:
    x = np.arange(3.0)
    ticket = ferry.publish(x)
    peer.run(there.attach_and_write, str(ticket), 7)
    x[1] = 9
    assert x.tolist() == [0, 9, 2]
    assert peer.run(there.values) == [7, 1, 2]
    # Everybody who attaches has the one copy.
    assert ferry.attach(ticket).tolist() == [7, 1, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(3.0),
        lambda: torch.ones(3),
        lambda: paddle.ones([3]),
        lambda: jnp.ones(3),
        lambda: tf.ones(3),
        lambda: b"abc",
        lambda: [np.ones(1), shared(1)],
        lambda: {"k": np.ones(1)},
    ],
)
def test_copy_false_raises_for_ordinary_memory(make) -> None:
    error = refused(ferry.CopyRequiredError, BufferError, lambda: ferry.publish(make(), copy=False))
    assert "ferry.empty_shared" in error.hint


def test_copy_true_copies_shared_memory(peer: Peer) -> None:
    x = shared(1, 2)
    with ferry.trace() as trips:
        ticket = ferry.publish(x, copy=True)
    assert [trip.shares for trip in trips] == [False]
    x[:] = 5
    assert peer.run(there.fetch_values, str(ticket)) == [1, 2]


def test_copy_at_the_consumer(peer: Peer) -> None:
    x = shared(1, 2)
    ticket = str(ferry.publish(x)), (kept := ferry.publish(x))
    peer.run(there.attach_and_write, str(kept), 9, copy=True)
    assert x.tolist() == [1, 2]
    peer.run(there.attach_and_write, str(kept), 9, copy=False)
    assert x.tolist() == [9, 2]
    with pytest.raises(PeerError) as caught:
        peer.run(there.visit, str(kept), dtype="float64", copy=False)
    assert caught.value.kind == "CopyRequiredError"
    assert ticket


def test_attach_in_the_same_process() -> None:
    x = shared(1, 2)
    ticket = ferry.publish(x)
    same = ferry.attach(ticket)
    assert same.ctypes.data == x.ctypes.data
    same[0] = 5
    assert x[0] == 5
    assert ticket.leases == 1
    there = ferry.attach(ticket, "torch")
    assert there.data_ptr() == x.ctypes.data
    frozen = ferry.attach(ferry.publish(x, writable=False))
    assert not frozen.flags.writeable
    x[1] = 8
    assert frozen.tolist() == [5, 8]


# ----- who may write


def test_read_only_tickets(peer: Peer) -> None:
    x = shared(1, 2)
    ticket = ferry.publish(x, writable=False)
    peer.run(there.attach, str(ticket))
    assert peer.run(there.is_writable) is False
    with pytest.raises(PeerError, match="read-only"):
        peer.run(there.write, 0, 1)
    x[0] = 6
    assert peer.run(there.values) == [6, 2]
    # Who knows no read-only tensors gets a copy, which may be written.
    peer.run(there.attach_and_write, str(ticket), 3, "torch")
    assert x[0] == 6
    with pytest.raises(PeerError) as caught:
        peer.run(there.visit, str(ticket), "torch", copy=False)
    assert caught.value.kind == "CopyRequiredError"
    peer.run(there.attach_and_write, str(ticket), 4, writable=True)
    assert x[0] == 6


@pytest.mark.parametrize("writable", [False, True])
def test_a_write_through_read_only_memory_ends_the_writer(writable: bool) -> None:
    x = shared(1, 2)
    ticket = ferry.publish(x, writable=writable)
    with Peer() as peer:
        peer.run(there.attach, str(ticket))
        peer.begin(there.write_by_address, 9)
        if writable:
            peer.end()
            assert x[0] == 9
        else:
            assert peer.wait() == -signal.SIGSEGV
            assert x[0] == 1


def test_memory_of_read_only_tickets_cannot_be_made_writable() -> None:
    ticket = ferry.publish(shared(1, 2), writable=False)
    with Peer() as peer:
        peer.run(there.attach, str(ticket))
        status = peer.run(there.make_page_writable)
    assert status == (-1, errno.EACCES), "mprotect gave the right to write"


@pytest.mark.parametrize(
    "make",
    [lambda: jnp.arange(3.0), lambda: tf.range(3.0), lambda: np.frombuffer(bytes(12), np.float32)],
)
def test_writable_true_of_immutable_sources(make, peer: Peer) -> None:
    """What is copied may be written by all without harm to the source."""
    x = make()
    before = np.array(x).tolist()
    ticket = ferry.publish(x, writable=True)
    peer.run(there.attach_and_write, str(ticket), 9, copy=False)
    assert np.array(x).tolist() == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: jnp.arange(3.0),
        lambda: tf.range(3.0),
        lambda: np.frombuffer(bytes(12), np.float32),
        lambda: b"abc",
    ],
    ids=["jax", "tensorflow", "numpy", "bytes"],
)
def test_copies_of_read_only_sources_can_be_written(make, peer: Peer) -> None:
    ticket, protected = ferry.publish(make()), ferry.publish(make(), writable=False)
    assert peer.run(there.fetch_writable, [str(ticket), str(protected)]) == [True, False]


def test_read_only_shared_memory(peer: Peer) -> None:
    x = shared(1, 2)
    x.flags.writeable = False
    ticket = ferry.publish(x, copy=False)
    peer.run(there.attach, str(ticket))
    assert peer.run(there.is_writable) is False
    refused(
        ferry.CopyRequiredError, BufferError, lambda: ferry.publish(x, copy=False, writable=True)
    )
    with ferry.trace() as trips:
        ticket = ferry.publish(x, writable=True)
    assert [trip.shares for trip in trips] == [False]
    peer.run(there.attach_and_write, str(ticket), 9)
    assert peer.run(there.is_writable) is True
    assert x.tolist() == [1, 2]


def test_one_read_only_tensor_makes_all_of_a_tree_read_only(peer: Peer) -> None:
    x, frozen = shared(1, 2), shared(3)
    frozen.flags.writeable = False
    ticket = ferry.publish([x, frozen])
    peer.run(there.attach, str(ticket))
    assert peer.run(there.is_writable) == [False, False]
    with ferry.trace() as trips:
        ticket = ferry.publish([x, frozen], writable=True)
    assert [trip.shares for trip in trips] == [True, False]
    peer.run(there.attach, str(ticket))
    assert peer.run(there.is_writable) == [True, True]


# ----- dtype and budget


@pytest.mark.parametrize("make", [lambda: np.arange(5.0), lambda: shared(0, 1, 2, 3, 4)])
def test_dtype(make, peer: Peer) -> None:
    x = make()
    with ferry.trace() as trips:
        ticket = ferry.publish(x, dtype="float16")
    assert trips[0].plan.dtype == "float16"
    assert not trips[0].shares
    for dtype, options in (("float16", {}), ("int32", {"dtype": "int32"})):
        peer.run(there.attach, str(ticket), **options)
        assert peer.run(there.name_of_dtype) == dtype
        assert peer.run(there.values) == [0, 1, 2, 3, 4]
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.publish(x, dtype="float33"))


def test_the_same_dtype_shares() -> None:
    with ferry.trace() as trips:
        ferry.publish(shared(1), dtype="float32", copy=False)
    assert trips[0].shares


def test_budget(peer: Peer) -> None:
    x = np.zeros(100, np.uint8)
    refused(ferry.OutOfMemoryError, MemoryError, lambda: ferry.publish(x, budget=99))
    refused(ferry.OutOfMemoryError, MemoryError, lambda: ferry.publish([x[:50], x], budget=99))
    # For each copy, and none for what is shared.
    ticket = ferry.publish([x, x + 1, ferry.empty_shared(1000, "uint8")], budget=100)
    with pytest.raises(PeerError) as caught:
        peer.run(there.visit, str(ticket), copy=True, budget=99)
    assert caught.value.kind == "OutOfMemoryError"
    peer.run(there.visit, str(ticket), budget=0)


def test_arguments_that_publish_does_not_have() -> None:
    with pytest.raises(TypeError, match="stream"):
        ferry.publish(np.ones(3), stream=1)
