"""Tickets: what they look like, and what is none."""

from __future__ import annotations

import os

import numpy as np
import pytest
from programs.processes import share_peer as there
from support.peer_processes import Peer, PeerError
from support.refusals import refused
from support.share_counts import catch_up

import tensorferry as ferry


def test_text_and_bytes(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3))
    text, raw = str(ticket), bytes(ticket)
    assert text.startswith("tensorferry-ticket:1:")
    assert len(text) < 300
    assert not set(text) & set(" \t\n'\"$&|;<>*?()[]{}\\!#~`"), "a shell would read it"
    for claim in (text, raw, f" {text}\n", ferry.Ticket(text), ferry.Ticket(raw), ticket):
        assert ferry.attach(claim).tolist() == [0, 1, 2]
    for claim in (text, raw, f"{text}\n"):
        assert peer.run(there.fetch_values, claim) == [0, 1, 2]


def test_through_the_environment_and_the_command_line() -> None:
    ticket = ferry.publish(np.arange(3))
    with Peer(TICKET=str(ticket)) as other:
        assert other.run(there.fetch_from_environment, "TICKET") == [0, 1, 2]


def test_equality_and_hash() -> None:
    ticket, other = ferry.publish(np.arange(3)), ferry.publish(np.arange(3))
    same = ferry.Ticket(str(ticket))
    assert ticket == same
    assert ticket.__ne__(same) is False
    assert hash(ticket) == hash(same)
    assert ticket != other
    assert ticket != str(ticket)
    assert ticket.__eq__(3) is NotImplemented
    assert {ticket, same, other} == {ticket, other}
    with pytest.raises(TypeError):
        sorted([ticket, other])


def test_the_secret_is_not_shown() -> None:
    ticket = ferry.publish(np.arange(3))
    secret = bytes(ticket)[29:45]
    hidden = (secret.hex(), str(list(secret))[1:-1], repr(secret)[2:-1], str(ticket)[-60:])
    seen = [repr(ticket), repr(ferry.Ticket(str(ticket))), repr([ticket]), f"{[ticket]}"]
    ticket.withdraw()
    seen.append(str(refused(ferry.TicketError, ConnectionError, lambda: ferry.attach(ticket))))
    for shown in seen:
        assert not any(part in shown for part in hidden), shown
        assert str(os.getpid()) in shown
        assert bytes(ticket)[13:17].hex() in shown


def test_process_and_leases_of_received_tickets(peer: Peer) -> None:
    ticket = ferry.publish(np.arange(3))
    assert ticket.pid == os.getpid()
    assert ticket.leases == 0
    assert peer.run(there.claim_and_leases, str(ticket)) == (os.getpid(), None)
    with pytest.raises(PeerError) as caught:
        peer.run(there.withdraw)
    assert caught.value.kind == "InvalidArgumentError"
    peer.run(there.enter_and_leave)
    assert ferry.attach(ticket).tolist() == [0, 1, 2], "another process withdrew it"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: "tensorferry-ticket:1:",
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text.upper(),
        lambda text: text.replace(":1:", ":2:"),
        lambda text: text + text,
        lambda text: text.encode(),
        lambda text: b"",
        lambda text: bytes(200),
        lambda text: bytes(ferry.Ticket(text))[:-1],
        lambda text: bytes(ferry.Ticket(text)) + b"x",
        lambda text: bytearray(bytes(ferry.Ticket(text))),
        lambda text: None,
        lambda text: 3,
        lambda text: np.arange(3),
    ],
)
def test_what_is_no_ticket(spoil) -> None:
    ticket = ferry.publish(np.arange(3))
    claim = spoil(str(ticket))
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.attach(claim))
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.Ticket(claim))


def test_text_that_is_no_text() -> None:
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.attach("\ud800"))


def test_every_byte_of_a_ticket_counts(peer: Peer) -> None:
    """Whichever is changed, nobody is let in, and the producer lives."""
    ticket = ferry.publish(np.arange(3))
    raw = bytes(ticket)
    for place in range(len(raw)):
        spoilt = bytearray(raw)
        spoilt[place] ^= 0x01
        with pytest.raises(PeerError) as caught:
            peer.run(there.visit, bytes(spoilt))
        assert caught.value.kind in ("TicketError", "InvalidArgumentError"), (
            place,
            str(caught.value),
        )
    assert peer.run(there.fetch_values, raw) == [0, 1, 2]
    catch_up()
    assert ticket.leases == 0
