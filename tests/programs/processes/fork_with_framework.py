"""Shares with the framework of the first argument, in a process and in its forked children."""

from __future__ import annotations

import sys

import numpy as np
from support.fork_work import work
from support.forks import fork, wait
from support.subprocesses import import_frameworks

import tensorferry as ferry

(target,) = sys.argv[1:]
import_frameworks(target)
small = ferry.to(np.arange(16, dtype=np.float32), "numpy", copy=True)
held = ferry.to(small, target)


def body() -> None:
    """What each process does."""
    there = ferry.to(small, target)
    assert ferry.to(there, "numpy").tolist() == list(range(16))
    assert ferry.to(held, "numpy").tolist() == list(range(16))
    work()


for _ in range(3):
    wait(fork(body))
body()
print("out")
