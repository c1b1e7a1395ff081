"""Threads that Python does not know, and what they do while somebody has the interpreter."""

from __future__ import annotations

import ctypes
import errno
import time
from ctypes import POINTER, byref, c_int, c_long, c_ulong, c_void_p

from support.subprocesses import HANG_SECONDS

# Functions of a PyDLL are called with the interpreter held.
_libc = ctypes.PyDLL(None)
_libc.pthread_create.argtypes = (POINTER(c_ulong), c_void_p, c_void_p, c_void_p)
_libc.pthread_create.restype = c_int
_libc.pthread_timedjoin_np.restype = c_int


class _Time(ctypes.Structure):
    _fields_ = (("seconds", c_long), ("nanoseconds", c_long))


_libc.pthread_timedjoin_np.argtypes = (c_ulong, c_void_p, POINTER(_Time))


def exits_without_the_interpreter(
    function: int, argument: int, seconds: int = HANG_SECONDS
) -> bool:
    """Runs a C function of one pointer on a thread that is none of Python's; whether it ended
    although this thread had the interpreter all the time."""
    thread = c_ulong()
    made = _libc.pthread_create(byref(thread), None, function, argument)
    assert made == 0, errno.errorcode[made]
    end = _Time(int(time.time()) + seconds, 0)
    joined = _libc.pthread_timedjoin_np(thread, None, byref(end))
    assert joined in (0, errno.ETIMEDOUT), errno.errorcode[joined]
    return joined == 0
