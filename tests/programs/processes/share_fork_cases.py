"""Publishes a tensor and forks; the argument names what the children do with the ticket."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from support import forks
from support.share_counts import catch_up, folders_of, soon

import tensorferry as ferry

x = ferry.empty_shared(3, "float32")
x[:] = 1
ticket = ferry.publish(x)
frozen = str(ticket)


def fork(body: Callable[[], object]) -> None:
    """Has a child run `body`, and waits for it."""
    forks.wait(forks.fork(body))


def attach_the_parents_ticket() -> None:
    """A child attaches, and what it writes is seen here."""

    def body() -> None:
        for claim in (ticket, frozen, bytes(ticket)):
            got = ferry.attach(claim)
            got[0] += 1
        assert x.tolist() == [4, 1, 1]

    fork(body)
    assert x.tolist() == [4, 1, 1]
    assert soon(lambda: ticket.leases == 0)


def publish_in_the_child() -> None:
    """A child publishes on its own, also its parent's memory."""

    def write(claim: str) -> None:
        ferry.attach(claim)[1] = 6

    def body() -> None:
        assert folders_of(os.getpid()) == set()
        mine = ferry.publish(np.arange(3))
        assert mine.pid == os.getpid()
        assert mine.pid != ticket.pid
        assert ferry.attach(mine).tolist() == [0, 1, 2]
        assert len(folders_of(os.getpid())) == 1
        # The parent's memory can be published by the child too.
        again = ferry.publish(x, copy=False)
        ferry.attach(again)[2] = 5
        fork(lambda: write(str(again)))

    fork(body)
    assert x.tolist() == [1, 6, 5]
    assert len(folders_of(os.getpid())) == 1, "the child took the parent's folder along"
    assert ferry.attach(ticket).tolist() == [1, 6, 5]


def drop_the_ticket_in_the_child() -> None:
    """Children withdraw, drop and forget their copies of the ticket, which stays good."""

    def body() -> None:
        global ticket
        try:
            ticket.withdraw()
            raise AssertionError("a ticket of the parent was withdrawn")
        except ferry.InvalidArgumentError:
            del ticket

    fork(body)
    fork(lambda: None)
    assert ferry.attach(frozen).tolist() == [1, 1, 1]
    child = os.fork()
    if child == 0:
        sys.stdout.close()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert ferry.attach(frozen).tolist() == [1, 1, 1]
    assert len(folders_of(os.getpid())) == 1


def hold_a_lease_in_the_child() -> None:
    """A child that inherits what was attached holds it too."""
    reader, writer = os.pipe()
    one, other = os.pipe()
    consumer = os.fork()
    if consumer == 0:
        os.close(writer)
        got = ferry.attach(frozen)
        grandchild = os.fork()
        if grandchild == 0:
            os.write(other, b"r")
            os.read(reader, 1)
            os._exit(0 if got.tolist() == [7, 1, 1] else 1)
        os._exit(0)
    assert os.waitpid(consumer, 0)[1] == 0
    os.read(one, 1)
    catch_up()
    assert ticket.leases == 1, "the grandchild has it still"
    x[0] = 7
    os.close(writer)
    assert soon(lambda: ticket.leases == 0)


def take_new_memory() -> None:
    """New memory of parent and child is not the same."""

    def filled(value: int) -> list[Any]:
        made = [ferry.empty_shared(1000, "uint8") for _ in range(50)]
        for one in made:
            one[:] = value
        return made

    def body() -> None:
        mine = filled(9)
        kept = [ferry.publish(np.full(100, 9, "uint8")) for _ in range(50)]
        assert len(mine) == len(kept)

    small = ferry.empty_shared(1000, "uint8")
    small[:] = 1
    fork(body)
    more = filled(2)
    fork(body)
    assert (small == 1).all()
    assert all((one == 2).all() for one in more)
    assert x.tolist() == [1, 1, 1]


def inherit_no_descriptor_of_the_server() -> None:
    """Else a killed parent's consumers would think that it lives."""
    got = ferry.attach(frozen)

    def body() -> None:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        sockets = [
            link
            for link in links
            if os.path.islink(link) and os.readlink(link).startswith("socket:")
        ]
        # The lease that was attached is inherited, the listener and the other end are not.
        assert len(sockets) == 1, sockets

    fork(body)
    assert got.tolist() == [1, 1, 1]


CASES = {
    case.__name__: case
    for case in (
        attach_the_parents_ticket,
        publish_in_the_child,
        drop_the_ticket_in_the_child,
        hold_a_lease_in_the_child,
        take_new_memory,
        inherit_no_descriptor_of_the_server,
    )
}

CASES[sys.argv[1]]()
print("out")
