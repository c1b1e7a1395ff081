"""Leaves by the way that the argument names, while a thread copies and a share is held."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import numpy as np

import tensorferry as ferry

EXITS: dict[str, Callable[[], object]] = {
    "sys.exit": lambda: sys.exit(0),
    "os._exit": lambda: os._exit(0),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
}

big = np.ones((4 << 20,), np.float32)
held = ferry.to(big.data, "numpy")
begun = threading.Semaphore(0)


def copy() -> None:
    """Copies for good."""
    while True:
        ferry.to(big, "numpy", copy=True)
        begun.release()


threading.Thread(target=copy, daemon=True).start()
for _ in range(5):
    begun.acquire()
print("out", flush=True)
EXITS[sys.argv[1]]()
