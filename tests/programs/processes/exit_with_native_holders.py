"""Has C code release tensors: after Python, on threads without Python, or while Python ends.

The first argument names the way; the second one of `while_python_exits` says when it begins.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from typing import Any

import numpy as np
from support.native_holders import held, libc
from support.share_counts import soon


def after_python() -> None:
    """The C library calls the deleters at exit, when the interpreter is gone."""
    cxa_atexit = libc.__cxa_atexit
    cxa_atexit.argtypes = (ctypes.c_void_p,) * 3
    choices: tuple[dict[str, Any], ...] = ({}, {"copy": True})
    for options in choices:
        for _ in range(10):
            cxa_atexit(*held(**options), None)
    # Memory of a bytearray, and frozen memory.
    for buffer in (bytearray(64), bytes(64), memoryview(bytearray(64))):
        cxa_atexit(*held(buffer), None)


class Array(np.ndarray[Any, Any]):
    """An array whose death can be watched."""


def release_without_python() -> None:
    """A thread that Python has never seen calls a deleter, and the array dies."""
    array = np.arange(1000, dtype=np.float32).view(Array)
    alive = weakref.ref(array)
    call = tuple(map(ctypes.c_void_p, held(array)))
    del array
    gc.collect()
    assert alive() is not None
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, *call) == 0
    assert libc.pthread_join(thread, None) == 0
    assert soon(lambda: alive() is None), "released by a thread that Python has never seen"


def without_python() -> None:
    """The same many times."""
    for _ in range(100):
        release_without_python()


class Event(ctypes.Structure):
    """The `sigevent` of POSIX: a function that a timer calls on a thread of its own."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("rest", ctypes.c_char * 40),
    )


class Times(ctypes.Structure):
    """The `itimerspec` of POSIX."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "in_s", "in_ns"))


SIGEV_THREAD = 2


def while_python_exits() -> None:
    """Timers call the deleters, at moments before, during and after the end of Python."""
    start = float(sys.argv[2])
    for number in range(300):
        deleter, address = held()
        event = Event(value=address, notify=SIGEV_THREAD, function=deleter)
        timer = ctypes.c_void_p()
        assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
        when = Times(in_ns=int((start + number / 300 * 0.15) * 1e9))
        assert libc.timer_settime(timer, 0, ctypes.byref(when), None) == 0


RELEASES = {
    release.__name__: release for release in (after_python, without_python, while_python_exits)
}

RELEASES[sys.argv[1]]()
print("out", flush=True)
