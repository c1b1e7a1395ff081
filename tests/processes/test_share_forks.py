"""Forked children of both sides, tensors that are handed on, and producers that do not answer."""

from __future__ import annotations

import contextlib
import errno
import resource
import signal
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest
from programs.processes import share_peer as there
from support import subprocesses
from support.peer_processes import Peer, PeerError
from support.share_counts import catch_up, sockets_of, soon

import tensorferry as ferry


@pytest.mark.parametrize(
    "case",
    [
        "attach_the_parents_ticket",
        "publish_in_the_child",
        "drop_the_ticket_in_the_child",
        "hold_a_lease_in_the_child",
        "take_new_memory",
        "inherit_no_descriptor_of_the_server",
    ],
)
def test_children(case: str) -> None:
    assert subprocesses.run_program("processes/share_fork_cases.py", case) == "out\n"


# ----- handed on


def test_three_processes() -> None:
    x = ferry.empty_shared(3, "float32")
    x[:] = 1
    first = ferry.publish(x)
    with Peer() as second, Peer() as third:
        again = second.run(there.hand_on, str(first), copy=False)
        third.run(there.attach, again, copy=False)
        third.run(there.write, 1, 5)
        assert x.tolist() == [1, 5, 1]
        # The second releases its own; what it passed on holds the lease of the first.
        second.run(there.drop, "got")
        catch_up()
        assert first.leases == 1
        third.run(there.write, 2, 6)
        assert x.tolist() == [1, 5, 6]
        second.run(there.drop, "ticket")
        catch_up()
        assert first.leases == 1, "the third has it from the second"
        third.run(there.drop, "got")
        assert soon(lambda: first.leases == 0)


def test_the_middle_one_is_killed() -> None:
    x = ferry.empty_shared(1000, "float32")
    x[:] = 1
    first = ferry.publish(x)
    with Peer() as second, Peer() as third:
        again = second.run(there.hand_on, str(first))
        third.run(there.attach, again)
        second.kill()
        assert soon(lambda ticket=first: ticket.leases == 0)
        # Nobody's lease speaks for the third any more, and yet its memory is not used for others.
        address = x.ctypes.data
        del x, first
        made = [ferry.empty_shared(1000, "float32") for _ in range(8)]
        for one in made:
            one[:] = 7
        assert third.run(there.total) == 1000, (address, made[0].ctypes.data)


def test_read_only_memory_is_handed_on_as_read_only() -> None:
    x = ferry.empty_shared(3, "float32")
    x[:] = 1
    first = ferry.publish(x, writable=False)
    with Peer() as second:
        got = ferry.attach(second.run(there.hand_on, str(first), copy=False))
        assert not got.flags.writeable
        with pytest.raises(PeerError) as caught:
            second.run(there.publish_got, name="other", copy=False, writable=True)
        assert caught.value.kind == "CopyRequiredError"
        second.run(there.publish_got, name="other", writable=True)


# ----- producers that do not answer


@pytest.fixture
def stopped() -> Iterator[tuple[str, Peer]]:
    """A ticket of a process that is stopped."""
    with Peer() as producer:
        ticket = producer.run(there.publish, np.arange(3.0))
        producer.stop()
        try:
            yield ticket, producer
        finally:
            producer.signal(signal.SIGCONT)


def test_a_stopped_producer_is_waited_for_as_long_as_said(stopped) -> None:
    ticket, producer = stopped

    def waited(timeout: float) -> float:
        """For how many seconds an attach waits, which is never less than said."""
        began = time.monotonic()
        with pytest.raises(ferry.DeadlineError) as caught:
            ferry.attach(ticket, timeout=timeout)
        seconds = time.monotonic() - began
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.hint
        assert seconds >= timeout
        return seconds

    longest = waited(1.0)
    for timeout in (0.0, 0.05, 0.3):
        # Other load only adds to the time: one attempt of many is shorter than the longest.
        assert soon(lambda timeout=timeout: waited(timeout) < longest)
    producer.signal(signal.SIGCONT)
    assert ferry.attach(ticket).tolist() == [0, 1, 2]
    # Those who went away are no leases.
    assert soon(lambda: producer.run(there.leases) == 0)


def begin_attach(consumer: Peer, ticket: str, count: int = 1) -> None:
    """Has a process attach in as many threads; returns when each has made its socket."""
    before = sockets_of(consumer.number)
    consumer.begin(there.fetch_sums, ticket, count, 3600)
    assert soon(lambda: sockets_of(consumer.number) >= before + count)


def test_ctrl_c_ends_the_wait(stopped) -> None:
    ticket, _ = stopped
    with Peer() as consumer:
        consumer.run(there.interrupt_by_ctrl_c)
        before = consumer.run(there.count_descriptors)
        begin_attach(consumer, ticket)
        consumer.signal(signal.SIGINT)
        with pytest.raises(PeerError) as caught:
            consumer.end()
        assert caught.value.kind == "KeyboardInterrupt"
        assert consumer.run(there.count_descriptors) == before


def test_a_signal_whose_handler_raises_nothing_does_not_end_the_wait(stopped, tmp_path) -> None:
    ticket, producer = stopped
    with Peer() as consumer:
        consumer.run(there.touch_at_signal, tmp_path / "seen")
        begin_attach(consumer, ticket)
        consumer.signal(signal.SIGUSR1)
        assert soon((tmp_path / "seen").exists)
        producer.signal(signal.SIGCONT)
        assert consumer.end() == [3.0]


def test_a_producer_that_dies_while_it_is_waited_for(stopped) -> None:
    ticket, producer = stopped
    with Peer() as consumer:
        begin_attach(consumer, ticket)
        producer.kill()
        with pytest.raises(PeerError) as caught:
            consumer.end()
        assert caught.value.kind == "TicketError"
        assert "stale" in caught.value.text


@contextlib.contextmanager
def full_queue(path: bytes) -> Iterator[None]:
    """Fills the queue of a socket on which nobody accepts."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        status = 0
        while status == 0:
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            status = one.connect_ex(path)
        assert status == errno.EAGAIN
        yield


def test_a_full_queue_is_waited_for(stopped) -> None:
    """More consumers than the producer's queue holds: all get in, once it goes on."""
    ticket, producer = stopped
    with Peer() as consumer, full_queue(bytes(ferry.Ticket(ticket))[46:]):
        begin_attach(consumer, ticket, 200)
        producer.signal(signal.SIGCONT)
        assert consumer.end() == [3.0] * 200


def test_numbers_arrive_without_tensors() -> None:
    assert np.isnan(ferry.attach(ferry.publish(float("nan"))))
