"""Thousands of publications and attachments, and the process is as it was."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from programs.processes import share_peer as there
from support.peer_processes import Peer
from support.share_counts import has_released_all, held, soon
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

pytestmark = pytest.mark.leak

# What allocators and caches take now and then. A leak of 700 bytes a round shows.
SLACK = 2 << 20
ROUNDS = 3000


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Peer() as made:
        yield made


def resident() -> int:
    gc.collect()
    ferry.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check(
    story: Callable[[], object], rounds: int = ROUNDS, patience: float = HANG_SECONDS
) -> None:
    """Runs it often, and counts before and after."""
    for _ in range(rounds // 5):
        story()
    before, memory = held(), resident()
    for _ in range(rounds):
        story()
    assert soon(lambda: has_released_all(before), patience), f"{held()} from {before}"
    assert resident() - memory < SLACK


def test_a_leak_would_show() -> None:
    kept: list[object] = []
    with pytest.raises(AssertionError):
        # Large enough that no page of the process that is partly used has room for it.
        check(lambda: kept.append(bytearray(5000)))
    kept.clear()
    with pytest.raises(AssertionError):
        check(lambda: kept.append(os.dup(0)), 5, 0.1)
    for descriptor in kept:
        os.close(descriptor)


SMALL = np.arange(100.0)
TREE = {"a": SMALL, "b": [SMALL, (1, "text", None)], "c": torch.ones(3)}


@pytest.mark.parametrize(
    "story",
    [
        lambda: ferry.empty_shared(1000, "float32"),
        lambda: ferry.empty_shared(5 << 20, "float32", framework="torch"),
        lambda: ferry.publish(SMALL),
        lambda: ferry.publish(TREE, writable=False, timeout=100),
        lambda: ferry.publish(SMALL).withdraw(),
        lambda: ferry.attach(ferry.publish(SMALL)),
        lambda: ferry.attach(ferry.publish(SMALL, writable=False), "torch"),
        lambda: ferry.attach(ferry.publish(TREE), "torch"),
        lambda: ferry.attach(ferry.publish(SMALL, once=True)),
        lambda: ferry.publish(ferry.attach(ferry.publish(SMALL)), copy=False),
        lambda: ferry.Ticket(str(ferry.publish(1))),
    ],
    ids=[
        "empty",
        "large",
        "publish",
        "tree",
        "withdraw",
        "attach",
        "read-only",
        "attach a tree",
        "once",
        "again",
        "ticket",
    ],
)
def test_in_one_process(story: Callable[[], object]) -> None:
    check(story)


def test_errors() -> None:
    withdrawn = ferry.publish(SMALL)
    withdrawn.withdraw()
    shared = ferry.empty_shared(3, "float32")
    stories = [
        lambda: ferry.publish([SMALL, object()]),
        lambda: ferry.publish([shared, SMALL], copy=False),
        lambda: ferry.publish([SMALL, SMALL + 1], budget=10),
        lambda: ferry.attach(withdrawn),
        lambda: ferry.attach("nonsense"),
        lambda: ferry.attach(ferry.publish([SMALL, SMALL[::2]]), "torch", writable=False),
    ]

    def story() -> None:
        for one in stories:
            with pytest.raises(ferry.FerryError):
                one()

    check(story, 800)


def test_expired_tickets_that_are_dropped() -> None:
    check(lambda: ferry.publish(SMALL, timeout=0.001), 2000)


def test_promises_that_are_kept() -> None:
    check(lambda: ferry.attach(ferry.publish(SMALL).__reduce__()[1][0]), 2000)


def test_the_other_process(peer: Peer) -> None:
    """Each attaches what the other publishes, and both stay as they were."""

    def story() -> None:
        ticket = ferry.publish(TREE)
        claim = peer.run(there.publish_one_more, str(ticket))
        assert float(ferry.attach(claim)[0]) == 1

    story()
    peer.run(there.drop, "ticket")
    before = peer.run(there.count_held)
    check(story, 500)
    peer.run(there.drop, "ticket")
    assert peer.run(there.releases_all, before)


def test_large_memory_is_given_back(peer: Peer) -> None:
    """64 MiB a hundred times: the third that stayed would be too much."""

    def shared_kib() -> int:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Shmem:"))

    before, memory = held(), shared_kib()
    for _ in range(40):
        x = ferry.empty_shared(64 << 20, "uint8")
        x[::4096] = 1
        ticket = ferry.publish(x)
        peer.run(there.attach_write_and_drop, str(ticket), 7)
        assert x[0] == 7
    del x, ticket
    assert soon(lambda: has_released_all(before))
    assert soon(lambda: shared_kib() - memory < 256 << 10)
