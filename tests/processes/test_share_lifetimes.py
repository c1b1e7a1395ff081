"""For how long tickets are good, and who is let in."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from programs.processes import share_peer as there
from support.peer_processes import Peer, PeerError
from support.refusals import check_words, refused
from support.share_counts import catch_up, folders_of, soon

import tensorferry as ferry


def refused_there(peer: Peer, ticket: object, kind: str = "TicketError") -> str:
    with pytest.raises(PeerError) as caught:
        peer.run(there.visit, ticket)
    assert caught.value.kind == kind, caught.value.text
    assert "\nhint: " in caught.value.text
    return caught.value.text


def limits() -> Iterator[float]:
    """Limits for tickets, in seconds, each longer than the one before.

    A test that does something before a limit ends tries the next one where it was too late.
    """
    seconds = 0.2
    while True:
        yield seconds
        seconds *= 3


def test_leases_are_counted(peer: Peer) -> None:
    ticket = ferry.publish({"a": np.arange(3), "b": np.ones(2)})
    peer.run(there.attach, str(ticket))
    assert ticket.leases == 1
    peer.run(there.attach_often, str(ticket), 5)
    assert ticket.leases == 6
    assert "6 leases" in repr(ticket)
    peer.run(there.drop, "more")
    assert soon(lambda: ticket.leases == 1)
    # The last tensor of a tree holds it, and copies do not.
    peer.run(there.keep_key, "b")
    catch_up()
    assert ticket.leases == 1
    peer.run(there.attach_key, str(ticket), "a", copy=True)
    assert soon(lambda: ticket.leases == 0)


def test_leases_end_with_the_consumer() -> None:
    ticket = ferry.publish(np.arange(3))
    with Peer() as one, Peer() as other:
        for consumer in (one, other):
            consumer.run(there.attach, str(ticket))
        assert ticket.leases == 2
        one.kill()
        assert soon(lambda: ticket.leases == 1)
    assert soon(lambda: ticket.leases == 0)


def test_once(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3), once=True)
    peer.run(there.attach, str(ticket))
    assert "one consumer" in refused_there(peer, str(ticket))
    refused(ferry.TicketError, ConnectionError, lambda: ferry.attach(ticket))
    assert peer.run(there.values) == [0, 1, 2]


@pytest.mark.parametrize(
    "attach",
    [
        lambda ticket: ferry.attach(ticket, "nothing"),
        lambda ticket: ferry.attach(ticket, bogus=1),
        lambda ticket: ferry.attach(ticket, dtype="float33"),
        lambda ticket: ferry.attach(ticket, timeout=-1),
        lambda ticket: ferry.attach(ticket, copy=5),
        lambda ticket: ferry.attach(ticket, "torch", writable=False),
        lambda ticket: ferry.attach(ticket, "jax", writable=True),
        lambda ticket: ferry.attach(ticket, "mlx", copy=False),
        lambda ticket: ferry.attach(ticket, device="cuda"),
    ],
    ids=[
        "framework",
        "bogus",
        "dtype",
        "timeout",
        "copy",
        "torch read-only",
        "jax writable",
        "mlx without a copy",
        "device",
    ],
)
def test_once_is_not_used_up_by_what_can_never_be(attach: Callable[[ferry.Ticket], object]) -> None:
    """These need no look at the tensors to be refused."""
    ticket = ferry.publish(np.arange(3), once=True)
    with pytest.raises((ferry.FerryError, TypeError)):
        attach(ticket)
    assert ferry.attach(ticket).tolist() == [0, 1, 2]


def test_timeout(peer: Peer) -> None:
    for seconds in limits():
        ticket = ferry.publish(np.arange(3), timeout=seconds)
        if peer.run(there.is_let_in, str(ticket), keep=True):
            break
    assert soon(lambda: not peer.run(there.is_let_in, str(ticket), keep=False))
    assert "expired" in refused_there(peer, str(ticket))
    assert peer.run(there.values) == [0, 1, 2]
    catch_up()
    assert ticket.leases == 1
    refused_there(peer, str(ferry.publish(np.arange(3), timeout=0)))


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("-inf"), -1e-9])
def test_times_that_are_none(timeout: float) -> None:
    ticket = ferry.publish(1)
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.publish(1, timeout=timeout))
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.attach(ticket, timeout=timeout))


def test_for_ever_is_a_time(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3), timeout=float("inf"))
    got = peer.run(there.fetch_values, str(ticket), timeout=float("inf"))
    assert got == [0, 1, 2]


def test_who_has_come_is_counted(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3))
    assert ticket.consumers == 0
    peer.run(there.visit, str(ticket), count=3)
    assert ticket.consumers == 3
    assert soon(lambda: ticket.leases == 0)
    assert ferry.Ticket(str(ticket)).consumers is None


@pytest.mark.parametrize("pickled", [False, True], ids=["ticket", "promise"])
def test_expired_memory_is_given_back(pickled: bool) -> None:
    with Peer() as producer:
        for seconds in limits():
            count = producer.run(there.publish_block, seconds, pickled=pickled)
            if count == 1:
                break
            assert count == 0
        assert producer.run(there.releases_mappings)


def test_withdraw(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3))
    peer.run(there.attach, str(ticket))
    ticket.withdraw()
    assert "withdrawn" in refused_there(peer, str(ticket))
    assert peer.run(there.values) == [0, 1, 2]
    assert ticket.leases == 1
    ticket.withdraw()
    peer.run(there.drop, "got")
    assert soon(lambda: ticket.leases == 0)


def test_with(peer: Peer) -> None:
    with ferry.publish(np.arange(3)) as ticket:
        assert peer.run(there.fetch_values, str(ticket)) == [0, 1, 2]
    refused_there(peer, str(ticket))
    with pytest.raises(KeyError), ferry.publish(np.arange(3)) as ticket:
        raise KeyError
    refused_there(peer, str(ticket))


def test_a_ticket_that_is_dropped(peer: Peer) -> None:
    claim = str(ferry.publish(np.arange(3)))
    gc.collect()
    assert "withdrawn" in refused_there(peer, claim)


def test_copies_of_a_ticket_are_the_ticket(peer: Peer) -> None:
    for copied in (copy.copy, copy.deepcopy):
        ticket = ferry.publish(np.arange(3))
        other = copied(ticket)
        claim = str(ticket)
        del ticket
        assert peer.run(there.fetch_values, claim) == [0, 1, 2]
        assert other.leases is not None
        del other
        refused_there(peer, claim)


def test_each_pickle_lets_one_more_in(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3))
    claims = [pickle.loads(pickle.dumps(ticket)) for _ in range(2)]
    assert claims[0] == ticket
    assert claims[0].leases is None
    del ticket
    for claim in claims:
        assert peer.run(there.fetch_values, claim) == [0, 1, 2]
    refused_there(peer, claims[0])


def test_withdraw_ends_promises(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3))
    raw = pickle.dumps(ticket)
    ticket.withdraw()
    del ticket
    refused_there(peer, pickle.loads(raw))


def test_promises_expire(peer: Peer) -> None:
    raw = pickle.dumps(ferry.publish(np.arange(3), timeout=0.1))
    # To try the promise would use it up. A ticket that expires later tells when it has expired.
    later = ferry.publish(np.arange(3), timeout=0.1)
    assert soon(lambda: not peer.run(there.is_let_in, str(later), keep=False))
    refused_there(peer, pickle.loads(raw))


def test_tickets_of_the_dead(peer: Peer) -> None:
    tickets = []
    for end in (Peer.kill, Peer.leave):
        producer = Peer()
        number = producer.number
        tickets.append(producer.run(there.publish, np.arange(3)))
        peer.run(there.attach, tickets[-1])
        end(producer)
        assert peer.run(there.values) == [0, 1, 2], "the memory went with its producer"
        assert re.search(rf"\b{number}\b.*stale", refused_there(peer, tickets[-1]))
        error = refused(ferry.TicketError, ConnectionError, lambda: ferry.attach(tickets[-1]))
        check_words(error)


def test_the_folder_is_private_and_goes_with_its_process() -> None:
    with Peer() as producer:
        assert folders_of(producer.number) == set()
        producer.run(there.publish, np.arange(3))
        (folder,) = folders_of(producer.number)
        assert os.stat(folder).st_mode & 0o777 == 0o700
        number = producer.number
    assert folders_of(number) == set()
