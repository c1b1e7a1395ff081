"""Withdrawn shared memory serves the next publication, once no other process has it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from programs.processes import share_peer as there
from support.peer_processes import Peer
from support.share_counts import soon

import tensorferry as ferry

# From 16 MiB on, a tensor has shared memory of its own.
COUNT = 32 << 18
BYTES = 4 * COUNT


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    ferry.empty_cache()
    yield
    ferry.empty_cache()


def filled(value: float) -> np.ndarray:
    return np.full(COUNT, value, "float32")


def test_withdrawn_memory_serves_the_next_publication(peer: Peer) -> None:
    before = ferry.memory_stats()
    for value in range(4):
        ticket = ferry.publish(filled(value))
        assert ferry.memory_stats().idle_shared_bytes == 0
        peer.run(there.visit, str(ticket))
        assert soon(lambda ticket=ticket: ticket.leases == 0)
        ticket.withdraw()
        assert ferry.memory_stats().idle_shared_bytes == BYTES
    now = ferry.memory_stats()
    assert (now.hits - before.hits, now.misses - before.misses) == (3, 1)
    assert now.idle_bytes == BYTES
    assert ferry.empty_cache() == BYTES
    assert ferry.memory_stats().idle_shared_bytes == 0


@pytest.mark.parametrize("writable", [False, True])
def test_a_consumer_that_keeps_its_mapping_never_sees_the_next_tensor(
    peer: Peer, writable: bool
) -> None:
    ticket = ferry.publish(filled(1), writable=writable)
    peer.run(there.map_memory_of, str(ticket))
    # The consumer has dropped its tensor, so that the lease has ended; its mapping is left.
    assert soon(lambda: ticket.leases == 0)
    ticket.withdraw()
    hits = ferry.memory_stats().hits
    for value in (2, 3):
        following = ferry.publish(filled(value), writable=writable)
        assert peer.run(there.mapped_values, COUNT) == [1, 1]
        following.withdraw()
    assert ferry.memory_stats().hits == hits + 1
    peer.run(there.unmap_memory)
    tickets = [ferry.publish(filled(value)) for value in (4, 5)]
    assert ferry.memory_stats().hits == hits + 3
    for ticket, value in zip(tickets, (4, 5), strict=True):
        result = ferry.attach(ticket, "numpy")
        assert (result == value).all()


def test_nothing_of_the_last_tensor_is_behind_the_next(peer: Peer) -> None:
    ferry.publish(filled(7)).withdraw()
    ticket = ferry.publish(filled(1)[: COUNT - COUNT // 8])
    assert ferry.memory_stats().idle_shared_bytes == 0
    peer.run(there.map_memory_of, str(ticket))
    assert peer.run(there.mapped_values, COUNT) == [1, 0]
    peer.run(there.unmap_memory)
