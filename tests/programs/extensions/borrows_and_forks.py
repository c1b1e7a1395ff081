"""Forks while two threads hold borrows: the child keeps those of the thread that forked."""

from __future__ import annotations

import os
import threading

import numpy as np
from support.c_table import Taken, borrow, release, take
from support.errors import raised

import tensorferry as ferry

own, other, more = np.ones(4), np.ones(4), np.ones(4)
taken = take(own, writable=True), take(other, writable=True)
is_held, is_over = threading.Event(), threading.Event()


borrowing: list[Taken] = []


def hold() -> None:
    borrowing.append(take(more, writable=True, borrow=True))
    held = borrow(other, taken[1], exclusive=True)
    is_held.set()
    is_over.wait()
    release(held)


thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
held = borrow(own, taken[0], exclusive=True)
child = os.fork()
if child == 0:
    raised(ferry.BorrowError, borrow, own, taken[0])
    release(held)
    # The deleter of a thread that does not exist in the child.
    borrowing[0].release()
    for array, tensor in zip((own, other), taken, strict=True):
        release(borrow(array, tensor, exclusive=True))
    take(more, writable=True, borrow=True).release()
    os._exit(0)
_, status = os.waitpid(child, 0)
raised(ferry.BorrowError, borrow, other, taken[1])
raised(ferry.BorrowError, take, more, borrow=True)
release(held)
is_over.set()
thread.join()
assert os.waitstatus_to_exitcode(status) == 0, status
