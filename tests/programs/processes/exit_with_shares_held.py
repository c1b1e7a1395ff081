"""Ends while shares between the frameworks of the arguments are held wherever they can be.

Every direction between the frameworks is held in every place that is emptied late or never.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import sys
import threading
from typing import Any

import numpy as np
from support.subprocesses import import_frameworks

names = sys.argv[1:]
import_frameworks(*names)

dropper: threading.Thread
# Runs after our own function at exit, which is registered by the import below.
atexit.register(lambda: dropper.join())
import tensorferry as ferry  # noqa: E402

Trip = tuple[Any, Any, Any]

want = np.arange(64, dtype=np.float32)
kept: list[list[Trip]] = []


def trip(a: str, b: str, **options: Any) -> Trip:
    """A tensor of `a`, the same as one of `b`, and that as one of `a` again."""
    x = ferry.to(want, a, copy=True)
    y = ferry.to(x, b, **options)
    z = ferry.to(y, a)
    return x, y, z


def all_trips() -> list[Trip]:
    """A share and a copy in every direction."""
    choices: tuple[dict[str, Any], ...] = ({}, {"copy": True})
    ways = itertools.permutations(names, 2)
    return [trip(*way, **options) for way in ways for options in choices]


# A module's globals, with the sources and without.
sources_and_results = all_trips()
results_only = [(y, z) for x, y, z in all_trips()]
# A chain: each result is the source of the next, and only the last is held.
chain: Any = np.arange(64, dtype=np.float32)
for name in names + names[::-1]:
    chain = ferry.to(chain, name)
# A frozen source lent to whoever takes it.
frozen = np.frombuffer(bytes(256), np.float32)
lent = [ferry.to(frozen, name) for name in names]


class Cycle:
    """A cycle that only the last collection finds."""

    def __init__(self) -> None:
        self.me, self.held = self, all_trips()


cycle = Cycle()
# An object that nobody will ever release.
immortal = all_trips()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(immortal))
# Functions that run at exit, before and after our own.
atexit.register(lambda: kept.append(all_trips()))


class Late:
    """An object whose end uses the library again."""

    def __del__(self) -> None:
        # `contextlib` may be gone.
        try:  # noqa: SIM105
            all_trips()
        except Exception:
            pass


late = Late()


# Threads that hold results, or are in the middle of a copy, when the process ends. (Not in the
# middle of a C++ framework: Python 3.11 unwinds such a thread, and PyTorch alone aborts then.)
def hold(held: list[Trip]) -> None:
    """Holds the trips for good."""
    threading.Event().wait()


threading.Thread(target=hold, args=(all_trips(),), daemon=True).start()
begun = threading.Semaphore(0)


def busy() -> None:
    """Copies for good."""
    big = np.ones((1 << 18,), np.float32)
    while True:
        ferry.to(big, "numpy", copy=True)
        ferry.to(want[::2], "numpy", dtype="float64")
        begun.release()


for _ in range(2):
    threading.Thread(target=busy, daemon=True).start()


# A thread that drops trips as soon as the main thread has ended, while our function at exit runs.
# It is done before Python finalises: JAX and PyTorch alone abort a thread that drops after that.
def wait_and_drop(held: list[Trip]) -> None:
    """Drops the trips when the main thread has ended."""
    threading.main_thread().join()
    held.clear()


dropper = threading.Thread(target=wait_and_drop, args=(all_trips(),), daemon=True)
dropper.start()
for _ in range(20):
    begun.acquire()
for _, _, last in sources_and_results:
    result: Any = ferry.to(last, "numpy")
    assert result.tolist() == want.tolist()
print("out", flush=True)
