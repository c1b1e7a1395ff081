"""Several threads publish and attach at once, and nobody waits with the interpreter's lock."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support import subprocesses
from support.peer_processes import Peer
from support.share_counts import descriptors, has_released_all, held, soon
from support.subprocesses import HANG_SECONDS

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
            claim = producer.run(
                "kept = ferry.publish(np.arange(3), once=True); result = str(kept)"
            )
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
    code = """
    from concurrent.futures import ThreadPoolExecutor
    def take(ticket):
        got = ferry.attach(ticket)
        got += 1
        return ferry.publish(got.copy()), got
    with ThreadPoolExecutor(4) as pool:
        pairs = list(pool.map(take, tickets))
    result = [str(ticket) for ticket, _ in pairs]
    """
    with Peer() as other:
        for turn in range(5):
            sources = [ferry.empty_shared(100, "float32") for _ in range(40)]
            for number, x in enumerate(sources):
                x[:] = number
            tickets = [ferry.publish(x) for x in sources]
            back = other.run(code, tickets=[str(ticket) for ticket in tickets])
            with ThreadPoolExecutor(4) as pool:
                for number, got in enumerate(pool.map(ferry.attach, back)):
                    assert (got == number + 1).all(), turn
            assert [float(x[5]) for x in sources] == [number + 1 for number in range(40)]


def test_the_lock_is_not_held_while_the_producer_is_waited_for() -> None:
    with Peer() as producer:
        claim = producer.run("kept = ferry.publish(np.arange(3)); result = str(kept)")
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
        claim = producer.run("kept = ferry.publish(np.arange(3)); result = str(kept)")
        # A function of a PyDLL keeps the interpreter's lock: the shell runs below it.
        producer.begin(
            "import ctypes; ctypes.PyDLL(None).system(command)",
            command=f"echo > {begun}; read line < {over}".encode(),
        )
        begun.read_text()
        for _ in range(20):
            assert ferry.attach(claim).tolist() == [0, 1, 2]
        over.write_text("\n")
        producer.end()


def test_forks_while_threads_publish_and_attach() -> None:
    """No lock stays behind in the child."""
    code = """
    import os, signal, threading
    import numpy as np
    import tensorferry as ferry
    from support.subprocesses import HANG_SECONDS

    stop = False
    def work():
        while not stop:
            ticket = ferry.publish(np.arange(100))
            assert ferry.attach(ticket)[99] == 99
            ferry.empty_shared(1000, "uint8")
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    failed = []
    for _ in range(40):
        child = os.fork()
        if child == 0:
            signal.alarm(HANG_SECONDS)
            status = 1
            try:
                ticket = ferry.publish(np.arange(100))
                status = 0 if ferry.attach(ticket, timeout=HANG_SECONDS)[99] == 99 else 2
            finally:
                os._exit(status)
        failed.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop = True
    for thread in threads:
        thread.join()
    assert not any(failed), failed
    print("out")
    """
    assert subprocesses.run(code) == "out\n"


def test_a_fork_while_another_thread_makes_the_first_call() -> None:
    """The other thread is in the middle of what is done once; the child does not wait for it."""
    code = """
    import os, signal, sys, threading, types
    import mlx.core
    import numpy as np
    import tensorferry as ferry
    from support.subprocesses import HANG_SECONDS

    real = sys.modules["mlx.core"]
    entered, forked = threading.Event(), threading.Event()

    class Module(types.ModuleType):
        # Asked for while the first call looks MLX's functions up.
        @property
        def __version__(self):
            if threading.current_thread() is not threading.main_thread():
                entered.set()
                forked.wait()
            return real.__version__

        def __getattr__(self, name):
            return getattr(real, name)

    sys.modules["mlx.core"] = Module("mlx.core")
    results = []
    thread = threading.Thread(target=lambda: results.append(ferry.to(np.arange(3), "mlx")))
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(HANG_SECONDS)
        status = 1
        try:
            status = 0 if ferry.to(np.arange(3), "mlx").tolist() == [0, 1, 2] else 2
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    forked.set()
    thread.join()
    assert status == 0, status
    assert results[0].tolist() == [0, 1, 2]
    print("out")
    """
    assert subprocesses.run(code) == "out\n"


@pytest.mark.parametrize("end", ["", "import sys; sys.exit(0)", "raise SystemExit"])
def test_a_process_ends_while_its_threads_publish_and_attach(end: str) -> None:
    code = f"""
    import threading
    import numpy as np
    import tensorferry as ferry

    begun = threading.Semaphore(0)
    kept = [ferry.publish(np.arange(3))]
    kept.append(ferry.attach(kept[0]))
    def work():
        while True:
            ticket = ferry.publish(np.arange(100))
            ferry.attach(ticket)
            begun.release()
    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(10):
        begun.acquire()
    print("out", flush=True)
    {end}
    """
    assert subprocesses.run(code) == "out\n"
