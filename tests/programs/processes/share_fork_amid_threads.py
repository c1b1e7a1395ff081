"""Forks while three threads publish and attach; each child publishes and attaches too."""

from __future__ import annotations

import threading

import numpy as np
from support.forks import fork, wait
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

stop = threading.Event()


def work() -> None:
    """What the threads do."""
    while not stop.is_set():
        ticket = ferry.publish(np.arange(100))
        assert ferry.attach(ticket)[99] == 99
        ferry.empty_shared(1000, "uint8")


def body() -> None:
    """What a child does."""
    ticket = ferry.publish(np.arange(100))
    assert ferry.attach(ticket, timeout=HANG_SECONDS)[99] == 99


threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
try:
    for _ in range(40):
        wait(fork(body))
finally:
    stop.set()
for thread in threads:
    thread.join()
print("out")
