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
from support import subprocesses
from support.peer_processes import Peer, PeerError
from support.share_counts import catch_up, descriptors_of, soon

import tensorferry as ferry

FORKS = """
import os, signal, sys
import numpy as np
import tensorferry as ferry
from support import forks
from support.share_counts import catch_up, descriptors, folders_of, mappings, soon

def fork(body):
    forks.wait(forks.fork(body))

x = ferry.empty_shared(3, "float32")
x[:] = 1
ticket = ferry.publish(x)
frozen = str(ticket)
"""


def tell(code: str) -> None:
    assert subprocesses.run(FORKS + code + "\nprint('out')") == "out\n"


def test_a_child_attaches_its_parents_ticket() -> None:
    tell("""
def body():
    for claim in (ticket, frozen, bytes(ticket)):
        got = ferry.attach(claim)
        got[0] += 1
    assert x.tolist() == [4, 1, 1]
fork(body)
assert x.tolist() == [4, 1, 1]
assert soon(lambda: ticket.leases == 0)
""")


def test_a_child_publishes_on_its_own() -> None:
    tell("""
def body():
    assert folders_of(os.getpid()) == set()
    mine = ferry.publish(np.arange(3))
    assert mine.pid == os.getpid() != ticket.pid
    assert ferry.attach(mine).tolist() == [0, 1, 2]
    assert len(folders_of(os.getpid())) == 1
    # The parent's memory can be published by the child too.
    again = ferry.publish(x, copy=False)
    ferry.attach(again)[2] = 5
    fork(lambda: ferry.attach(str(again))[:] .__setitem__(1, 6))
fork(body)
assert x.tolist() == [1, 6, 5]
assert len(folders_of(os.getpid())) == 1, "the child took the parent's folder along"
assert ferry.attach(ticket).tolist() == [1, 6, 5]
""")


def test_what_a_child_does_with_its_copy_of_a_ticket_is_its_own_affair() -> None:
    tell("""
def body():
    global ticket
    try:
        ticket.withdraw()
        raise AssertionError("a ticket of the parent was withdrawn")
    except ferry.InvalidArgumentError:
        del ticket
fork(body)
fork(lambda: sys.exit(0) if False else None)
assert ferry.attach(frozen).tolist() == [1, 1, 1]
child = os.fork()
if child == 0:
    sys.stdout.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ferry.attach(frozen).tolist() == [1, 1, 1]
assert len(folders_of(os.getpid())) == 1
""")


def test_leases_in_a_child() -> None:
    """A child that inherits what was attached holds it too."""
    tell("""
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
""")


def test_new_memory_after_a_fork_is_not_shared_by_accident() -> None:
    tell("""
def body():
    mine = [ferry.empty_shared(1000, "uint8") for _ in range(50)]
    for one in mine:
        one[:] = 9
    kept = [ferry.publish(np.full(100, 9, "uint8")) for _ in range(50)]
small = ferry.empty_shared(1000, "uint8")
small[:] = 1
fork(body)
more = [ferry.empty_shared(1000, "uint8") for _ in range(50)]
for one in more:
    one[:] = 2
fork(body)
assert (small == 1).all() and all((one == 2).all() for one in more) and x.tolist() == [1, 1, 1]
""")


def test_a_child_holds_no_descriptor_of_the_server() -> None:
    """Else a killed parent's consumers would think that it lives."""
    tell("""
got = ferry.attach(frozen)
def body():
    sockets = [name for name in os.listdir("/proc/self/fd")
               if os.path.islink(f"/proc/self/fd/{name}")
               and os.readlink(f"/proc/self/fd/{name}").startswith("socket:")]
    # The lease that was attached is inherited, the listener and the other end are not.
    assert len(sockets) == 1, sockets
fork(body)
""")


# ----- handed on


def test_three_processes() -> None:
    x = ferry.empty_shared(3, "float32")
    x[:] = 1
    first = ferry.publish(x)
    with Peer() as second, Peer() as third:
        code = "got = ferry.attach(ticket); again = ferry.publish(got, copy=False)"
        again = second.run(code + "; result = str(again)", ticket=str(first))
        third.run("got = ferry.attach(ticket, copy=False); got[1] = 5", ticket=again)
        assert x.tolist() == [1, 5, 1]
        # The second lets go of its own; what it handed on holds the lease of the first.
        second.run("del got")
        catch_up()
        assert first.leases == 1
        third.run("got[2] = 6")
        assert x.tolist() == [1, 5, 6]
        second.run("del again")
        catch_up()
        assert first.leases == 1, "the third has it from the second"
        third.run("del got")
        assert soon(lambda: first.leases == 0)


def test_the_middle_one_is_killed() -> None:
    x = ferry.empty_shared(1000, "float32")
    x[:] = 1
    first = ferry.publish(x)
    with Peer() as second, Peer() as third:
        code = "got = ferry.attach(ticket); again = ferry.publish(got); result = str(again)"
        again = second.run(code, ticket=str(first))
        third.run("got = ferry.attach(ticket)", ticket=again)
        second.kill()
        assert soon(lambda ticket=first: ticket.leases == 0)
        # Nobody's lease speaks for the third any more, and yet its memory is not used for others.
        address = x.ctypes.data
        del x, first
        made = [ferry.empty_shared(1000, "float32") for _ in range(8)]
        for one in made:
            one[:] = 7
        assert third.run("result = got.sum()") == 1000, (address, made[0].ctypes.data)


def test_read_only_memory_is_handed_on_as_read_only() -> None:
    x = ferry.empty_shared(3, "float32")
    x[:] = 1
    first = ferry.publish(x, writable=False)
    with Peer() as second:
        code = "got = ferry.attach(ticket); again = ferry.publish(got, copy=False)"
        got = ferry.attach(second.run(code + "; result = str(again)", ticket=str(first)))
        assert not got.flags.writeable
        with pytest.raises(PeerError) as caught:
            second.run("ferry.publish(got, copy=False, writable=True)")
        assert caught.value.kind == "CopyRequiredError"
        second.run("other = ferry.publish(got, writable=True); result = str(other)")


# ----- producers that do not answer


@pytest.fixture
def stopped() -> Iterator[tuple[str, Peer]]:
    """A ticket of a process that is stopped."""
    with Peer() as producer:
        ticket = producer.run("x = np.arange(3.0); kept = ferry.publish(x); result = str(kept)")
        producer.stop()
        try:
            yield ticket, producer
        finally:
            producer.signal(signal.SIGCONT)


def test_a_stopped_producer_is_waited_for_as_long_as_said(stopped) -> None:
    ticket, producer = stopped

    def late(timeout: float) -> float:
        """By how many seconds more than said an attach waits."""
        began = time.monotonic()
        with pytest.raises(ferry.DeadlineError) as caught:
            ferry.attach(ticket, timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.hint
        return time.monotonic() - began - timeout

    for timeout in (0.0, 0.05, 0.3):
        assert late(timeout) >= 0
        # Other load only adds to the time: one attempt of many has to be on time.
        assert soon(lambda timeout=timeout: 0 <= late(timeout) < 2)
    producer.signal(signal.SIGCONT)
    assert ferry.attach(ticket).tolist() == [0, 1, 2]
    # Those who went away are no leases.
    assert soon(lambda: producer.run("result = kept.leases") == 0)


def begin_attach(consumer: Peer, ticket: str, count: int = 1) -> None:
    """Has a process attach in as many threads; comes back when each has made its socket."""
    before = descriptors_of(consumer.number)
    consumer.begin(
        """
        import concurrent.futures
        if count == 1:
            result = float(ferry.attach(ticket, timeout=3600).sum())
        else:
            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                made = [pool.submit(ferry.attach, ticket, timeout=3600) for _ in range(count)]
                result = [float(one.result().sum()) for one in made]
        """,
        ticket=ticket,
        count=count,
    )
    assert soon(lambda: descriptors_of(consumer.number) >= before + count)


def test_ctrl_c_ends_the_wait(stopped) -> None:
    ticket, _ = stopped
    with Peer() as consumer:
        consumer.run("import signal; from support.share_counts import descriptors")
        consumer.run("signal.signal(signal.SIGINT, signal.default_int_handler)")
        before = consumer.run("result = descriptors()")
        begin_attach(consumer, ticket)
        consumer.signal(signal.SIGINT)
        with pytest.raises(PeerError) as caught:
            consumer.end()
        assert caught.value.kind == "KeyboardInterrupt"
        assert consumer.run("result = descriptors()") == before


def test_a_signal_whose_handler_raises_nothing_does_not_end_the_wait(stopped, tmp_path) -> None:
    ticket, producer = stopped
    with Peer() as consumer:
        consumer.run(
            "import pathlib, signal; signal.signal(signal.SIGUSR1, lambda *_: path.touch())",
            path=tmp_path / "seen",
        )
        begin_attach(consumer, ticket)
        consumer.signal(signal.SIGUSR1)
        assert soon((tmp_path / "seen").exists)
        producer.signal(signal.SIGCONT)
        assert consumer.end() == 3


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
