"""Work on a second thread while the first one is inside one C call and runs no Python code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

# Functions of a CDLL are called without the GIL.
_libc = ctypes.CDLL(None)
# Larger than a mutex or a condition variable of pthreads on any system.
_ROOM = 128


def run_while_this_thread_is_blocked(work: Callable[[], None]) -> None:
    """Runs the work on another thread; raises what it raises.

    `pthread_cond_wait` gives up the mutex once this thread waits. So the other thread gets the
    mutex only when this one is in that call, and not in the Python code before it.
    """
    mutex, condition = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
    assert _libc.pthread_mutex_init(mutex, None) == 0
    assert _libc.pthread_cond_init(condition, None) == 0
    done, raised = [], []

    def run() -> None:
        _libc.pthread_mutex_lock(mutex)
        try:
            work()
        except BaseException as error:
            raised.append(error)
        done.append(True)
        _libc.pthread_cond_signal(condition)
        _libc.pthread_mutex_unlock(mutex)

    thread = threading.Thread(target=run)
    _libc.pthread_mutex_lock(mutex)
    thread.start()
    while not done:
        _libc.pthread_cond_wait(condition, mutex)
    _libc.pthread_mutex_unlock(mutex)
    thread.join()
    if raised:
        raise raised[0]
