"""Ends in the way that the argument names, while its threads publish and attach."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

import tensorferry as ferry

begun = threading.Semaphore(0)
first = ferry.publish(np.arange(3))
kept: list[Any] = [first, ferry.attach(first)]


def work() -> None:
    """Publishes and attaches for good."""
    while True:
        ticket = ferry.publish(np.arange(100))
        ferry.attach(ticket)
        begun.release()


for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
for _ in range(10):
    begun.acquire()
print("out", flush=True)
if sys.argv[1] == "sys.exit":
    sys.exit(0)
if sys.argv[1] == "SystemExit":
    raise SystemExit
assert sys.argv[1] == "last line"
