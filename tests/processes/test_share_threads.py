"""Several threads publish and attach at once, and nobody waits with the interpreter's lock."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from programs.processes import share_peer as there
from support.peer_processes import Peer
from support.share_counts import descriptors, has_released_all, held, soon
from support.subprocesses import HANG_SECONDS, run_program

import tensorferry as ferry

THREADS = 6
ROUNDS = 60


def test_threads_that_publish_and_attach_at_once() -> None:
    """Each has its own values, small and large, and finds those alone."""
    ferry.attach(ferry.publish(np.arange(3)))
    before = held()

    def work(number: int) -> int:
        for turn in range(ROUNDS):
            mark = number * 1000 + turn
            size = (3, 1000, 70_000, 5 << 20)[turn % 4 if turn % 20 == 3 else turn % 3]
            x = ferry.empty_shared(size, "int32")
            x[:3] = mark
            x[-1] = mark
            with ferry.publish({"x": x, "y": np.full(7, mark)}) as ticket:
                got = ferry.attach(str(ticket), "torch" if turn % 5 == 0 else "numpy")
                assert int(got["x"][0]) == int(got["x"][-1]) == mark
                assert got["y"].tolist() == [mark] * 7
                got["x"][0] = -mark
                assert x[0] == -mark
                assert ticket.leases == 1
            assert int(got["y"][6]) == mark
            del got, x
        return ROUNDS

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [ROUNDS] * THREADS
    assert soon(lambda: has_released_all(before)), f"{held()} from {before}"


def test_many_threads_attach_one_ticket_for_one() -> None:
    """However many come at once, one is let in."""
    with Peer() as producer:
        for _ in range(20):
            claim = producer.run(there.publish, np.arange(3), once=True)
            gate = threading.Barrier(THREADS)

            def come(claim: str = claim, gate: threading.Barrier = gate) -> bool:
                gate.wait()
                try:
                    return ferry.attach(claim).tolist() == [0, 1, 2]
                except ferry.TicketError:
                    return False

            with ThreadPoolExecutor(THREADS) as pool:
                assert sum(one.result() for one in [pool.submit(come) for _ in range(THREADS)]) == 1


def test_threads_of_two_processes() -> None:
    """Both are producer and consumer at once."""
    with Peer() as other:
        for turn in range(5):
            sources = [ferry.empty_shared(100, "float32") for _ in range(40)]
            for number, x in enumerate(sources):
                x[:] = number
            tickets = [ferry.publish(x) for x in sources]
            back = other.run(there.add_one_to_each, [str(ticket) for ticket in tickets])
            with ThreadPoolExecutor(4) as pool:
                for number, got in enumerate(pool.map(ferry.attach, back)):
                    assert (got == number + 1).all(), turn
            assert [float(x[5]) for x in sources] == [number + 1 for number in range(40)]


def test_the_lock_is_not_held_while_the_producer_is_waited_for() -> None:
    with Peer() as producer:
        claim = producer.run(there.publish, np.arange(3))
        producer.stop()
        got: list[object] = []

        def wait() -> None:
            try:
                got.append(ferry.attach(claim, timeout=HANG_SECONDS).tolist())
            except ferry.FerryError as error:
                got.append(error)

        before = descriptors()
        thread = threading.Thread(target=wait)
        thread.start()
        try:
            # It has its socket, and nobody answers.
            assert soon(lambda: descriptors() > before)
            for _ in range(1000):
                # Each turn gives the lock away and takes it again.
                time.sleep(0)
            assert thread.is_alive()
            assert got == []
        finally:
            producer.signal(signal.SIGCONT)
            thread.join()
        assert got == [[0, 1, 2]]


def test_an_attach_to_ourselves_while_another_thread_has_the_lock() -> None:
    """Our own server needs no interpreter to answer."""
    ticket = ferry.publish(np.arange(3))
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert ferry.attach(ticket, timeout=HANG_SECONDS).tolist() == [0, 1, 2]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_server_answers_while_its_interpreter_computes(tmp_path) -> None:
    """A producer that is in the middle of something long answers all the same."""
    begun, over = tmp_path / "begun", tmp_path / "over"
    for path in (begun, over):
        os.mkfifo(path)
    with Peer() as producer:
        claim = producer.run(there.publish, np.arange(3))
        command = f"echo > {begun}; read line < {over}"
        producer.begin(there.run_shell_with_the_gil, command.encode())
        begun.read_text()
        for _ in range(20):
            assert ferry.attach(claim).tolist() == [0, 1, 2]
        over.write_text("\n")
        producer.end()


def test_forks_while_threads_publish_and_attach() -> None:
    """No lock stays behind in the child."""
    assert run_program("processes/share_fork_amid_threads.py") == "out\n"


def test_a_fork_while_another_thread_makes_the_first_call() -> None:
    """The other thread is in the middle of what is done once; the child does not wait for it."""
    assert run_program("processes/fork_amid_a_lookup.py") == "out\n"


@pytest.mark.parametrize("end", ["last line", "sys.exit", "SystemExit"])
def test_a_process_ends_while_its_threads_publish_and_attach(end: str) -> None:
    assert run_program("processes/share_exit_amid_threads.py", end) == "out\n"
