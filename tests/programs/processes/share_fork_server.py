"""Forks consumers and producers that are killed, as the lines of stdin ask.

The children do the dying: a fresh interpreter for each would take minutes. A line is "consume" and
a ticket, "produce" and a count, or "reap", which waits for all children.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry


def consume(ticket: str) -> None:
    """Attaches for good, and holds the last few."""
    held: list[Any] = []
    while True:
        got: Any = ferry.attach(ticket, timeout=HANG_SECONDS)
        assert got["small"][0] == 5
        assert got["large"][-1] == 6
        held.append(got)
        if len(held) > 3:
            held.pop(0)


def produce(count: str) -> None:
    """Publishes as many, tells the tickets, holds the last few, and waits to be killed."""
    kept: list[ferry.Ticket] = []
    for number in range(int(count)):
        x = ferry.empty_shared(1000 if number % 2 else 5 << 20, "float32")
        x[0], x[-1] = 5, 6
        kept.append(ferry.publish({"x": x, "y": np.full(10, number)}))
        os.write(1, str(kept[-1]).encode() + b"\n")
        if len(kept) > 4:
            kept.pop(0)
    signal.pause()


def reap() -> None:
    """Waits until there are no children."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    os.write(1, b"reaped\n")


def start(role: str, argument: str) -> None:
    """Forks a child that plays a role."""
    if os.fork() == 0:
        # The child says so itself, before anything else that it has to say.
        os.write(1, f"born {os.getpid()}\n".encode())
        try:
            {"consume": consume, "produce": produce}[role](argument)
        except BaseException as error:
            os.write(2, f"{role}: {type(error).__name__}: {error}\n".encode())
        os._exit(1)


for line in sys.stdin:
    if line.strip() == "reap":
        reap()
    else:
        start(*line.split())
