"""Releases GPU memory while the GPU is busy, beside a thread that needs the interpreter.

The wait is for the GPU alone: a thread that wants the interpreter has it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from programs.processes import gpu_peer
from support.fake_gpu import driver
from support.peer_processes import Peer

import tensorferry as ferry

SIZE = 9 << 20


def beside(work: Callable[[], object]) -> None:
    """Does work that waits for the GPU until another thread has done its own."""
    done: list[str] = []
    ended = threading.Event()

    def count() -> None:
        while not driver.testdriver_waits():
            if ended.is_set():
                return
            time.sleep(0.001)
        # Each turn gives the interpreter away and takes it again.
        for _ in range(20):
            time.sleep(0)
        done.append("beside")
        driver.testdriver_hold(0)

    thread = threading.Thread(target=count)
    driver.testdriver_hold(1)
    thread.start()
    work()
    done.append("work")
    ended.set()
    thread.join()
    driver.testdriver_hold(0)
    assert done == ["beside", "work"], done


def refuse(ticket: str) -> None:
    """Attaches to a type that CuPy lacks."""
    try:
        ferry.attach(ticket, "cupy", dtype="bfloat16")
    except ferry.FerryError:
        return
    raise AssertionError("it was attached")


def clear_elsewhere(held: dict[str, Any]) -> None:
    """Clears a dict on a thread of its own."""
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


with Peer() as other:
    held: dict[str, Any]
    held = {"x": ferry.attach(other.run(gpu_peer.publish_new, SIZE), "cupy", copy=False)}
    beside(held.clear)
    # What was copied is released before attach returns.
    ticket = other.run(gpu_peer.publish_new, SIZE)
    beside(lambda: ferry.attach(ticket, "numpy"))
    # So is what goes wrong on the way.
    beside(lambda: refuse(ticket))
    # Memory of our own.
    held = {"x": ferry.empty_shared(SIZE, "uint8", framework="cupy", device="cuda")}
    beside(held.clear)
    # And on a thread of its own, which has the interpreter too.
    held = {"x": ferry.attach(ticket, "cupy", copy=False)}
    beside(lambda: clear_elsewhere(held))
