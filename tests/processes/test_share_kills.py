"""Killed at any moment, producers and consumers take nothing with them and leave nothing behind."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pytest
from programs.processes import share_peer as there
from support.peer_processes import Peer
from support.share_counts import (
    folder_owners,
    has_released_all,
    held,
    shared_files,
    soon,
)
from support.subprocesses import HANG_SECONDS, program_environment, program_path

import tensorferry as ferry

ROUNDS = 120


class ForkServer:
    """Children by the dozen, whose sockets are in `socket_base`."""

    def __init__(self, socket_base: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, program_path("processes/share_fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=program_environment(XDG_RUNTIME_DIR=socket_base),
        )

    def _tell(self, line: str) -> None:
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def start(self, role: str, argument: str) -> int:
        self._tell(f"{role} {argument}")
        while not (line := self.line()).startswith("born "):
            pass
        return int(line.removeprefix("born "))

    def line(self) -> str:
        line = self._process.stdout.readline().decode()
        assert line, "the fork server has ended"
        return line.strip()

    def reap(self) -> None:
        self._tell("reap")
        while self.line() != "reaped":
            pass

    def close(self) -> str:
        """Ends it, and gives what its children complained about."""
        _, complaints = self._process.communicate(timeout=HANG_SECONDS)
        assert self._process.returncode == 0
        return complaints.decode()


@pytest.fixture
def socket_base() -> Iterator[str]:
    """A directory in which only this test's processes publish.

    The first `publish` of a process removes the folders of dead producers. In /tmp, a process of
    another test could do so before this test counts them.
    """
    # Not `tmp_path`, which is too long for the path of a socket.
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp") as base:
        yield base


@pytest.fixture
def fork_server(socket_base: str) -> Iterator[ForkServer]:
    made = ForkServer(socket_base)
    yield made
    made._process.kill()
    made._process.communicate()


@pytest.fixture
def dice() -> random.Random:
    """What is random here, by a seed that is printed (and can be given)."""
    seed = int(os.environ.get("TENSORFERRY_TEST_SEED", time.time_ns() % (1 << 32)))
    print(f"TENSORFERRY_TEST_SEED={seed}")
    return random.Random(seed)


def shared_kib() -> int:
    """Shared memory of the whole machine: what nobody could ever give back would stay in it."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Shmem:"))


def test_consumers_that_are_killed(fork_server: ForkServer, dice: random.Random) -> None:
    small, large = ferry.empty_shared(10, "float32"), ferry.empty_shared(6 << 20, "float32")
    small[0], large[-1] = 5, 6
    ticket = ferry.publish({"small": small, "large": large})
    assert float(ferry.attach(ticket)["small"][0]) == 5
    assert soon(lambda: ticket.leases == 0)
    before, files = held(), shared_files()
    consumers: list[int] = []
    for _ in range(ROUNDS):
        came = ticket.consumers
        consumers.append(fork_server.start("consume", str(ticket)))
        # Some are killed before they attach, some while they do, some in between.
        if dice.random() < 0.5:
            assert soon(lambda came=came: ticket.consumers > came)
        time.sleep(dice.random() * 0.02)
        if len(consumers) > dice.randrange(4):
            os.kill(consumers.pop(dice.randrange(len(consumers))), signal.SIGKILL)
    consumers.append(fork_server.start("consume", str(ticket)))
    assert soon(lambda: ticket.leases > 0), "nobody ever attached"
    for child in consumers:
        os.kill(child, signal.SIGKILL)
    fork_server.reap()
    assert soon(lambda: ticket.leases == 0), f"{ticket.leases} leases of the dead"
    assert soon(lambda: has_released_all(before)), "descriptors and mappings"
    assert fork_server.close() == ""
    assert soon(lambda: shared_files() <= files)
    assert (small[0], large[-1]) == (5, 6)
    with Peer() as survivor:
        survivor.run(there.attach_key, str(ticket), "small")
        assert survivor.run(there.values)[0] == 5
    ticket.withdraw()
    del small, large
    assert held()[1] <= before[1] - 1, "the large one has an arena of its own"


def test_producers_that_are_killed(
    fork_server: ForkServer, socket_base: str, dice: random.Random
) -> None:
    ferry.attach(ferry.publish(np.arange(3)))
    gc.collect()
    before, files, memory = held(), shared_files(), shared_kib()
    good = stale = 0
    kept, dead = [], set()
    for _ in range(ROUNDS):
        count = dice.randrange(8)
        child = fork_server.start("produce", str(count + dice.randrange(4)))
        dead.add(child)
        tickets = [fork_server.line() for _ in range(count)]
        results = []
        if dice.random() < 0.5:
            os.kill(child, signal.SIGKILL)
            child = 0
        # Some of these have left the producer's list already; the last are alive, or just dead.
        for claim in tickets[-3:]:
            try:
                results.append(ferry.attach(claim, timeout=HANG_SECONDS))
            except ferry.TicketError:
                stale += 1
        if child:
            os.kill(child, signal.SIGKILL)
        good += len(results)
        kept += results[:1]
        kept = kept[-5:]
        for got in kept:
            assert (got["x"][0], got["x"][-1]) == (5, 6), "the memory went with its producer"
            assert (got["y"] == got["y"][0]).all()
    fork_server.reap()
    print(f"{good} attached, {stale} refused")
    # One that is alive, and then certainly dead.
    child = fork_server.start("produce", "1")
    dead.add(child)
    claim = fork_server.line()
    got = ferry.attach(claim, timeout=HANG_SECONDS)
    os.kill(child, signal.SIGKILL)
    fork_server.reap()
    with pytest.raises(ferry.TicketError, match=r"stale.*\nhint: "):
        ferry.attach(claim)
    assert (got["x"][0], got["x"][-1]) == (5, 6), "the memory went with its producer"
    del kept, results, got
    assert soon(lambda: has_released_all(before)), "descriptors and mappings"
    assert soon(lambda: shared_files() <= files)
    assert soon(lambda: shared_kib() - memory < 64 << 10), "shared memory that nobody has"
    assert fork_server.close() == ""
    left = folder_owners(socket_base)
    assert left, "nobody died with a folder"
    assert dead.issuperset(left)
    with Peer(XDG_RUNTIME_DIR=socket_base) as survivor:
        survivor.run(there.publish, np.arange(3))
        assert folder_owners(socket_base) == [survivor.number], "after the next publish"


def test_both_sides_of_a_long_lived_pair(dice: random.Random) -> None:
    """One survivor on each side, while the other dies in the middle of a hand-over of many."""
    tree = {str(n): np.full(100, n) for n in range(2000)}
    ticket = ferry.publish(tree)
    before = held()
    for _ in range(5):
        with Peer() as consumer:
            consumer.run(there.visit, str(ticket))
            came = ticket.consumers
            consumer.begin(there.attach_for_good, str(ticket))
            assert soon(lambda came=came: ticket.consumers > came)
            time.sleep(dice.random() * 0.05)
            consumer.kill()
        with Peer() as producer:
            claim = producer.run(there.publish, tree)
            got, refusal = ferry.attach(claim, timeout=HANG_SECONDS), None
            producer.begin(there.die_after, dice.random() * 0.05)
            while refusal is None:
                try:
                    got = ferry.attach(claim, timeout=HANG_SECONDS)
                    assert int(got["1999"][99]) == 1999
                except ferry.TicketError as error:
                    refusal = str(error)
            assert producer.wait() == -signal.SIGKILL
            assert int(got["1999"][99]) == 1999
            del got
            assert "stale" in refusal or "closed" in refusal or "nowhere" in refusal, refusal
    assert soon(lambda: ticket.leases == 0)
    assert soon(lambda: has_released_all(before))
