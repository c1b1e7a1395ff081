"""Blocks of memory at chosen addresses, and a way to change a byte behind everybody's back."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile

import numpy as np

ALIGNMENT = 64


def block(size: int, past: int = 0) -> np.ndarray:
    """`size` bytes that start `past` bytes after a multiple of 64."""
    room = np.zeros(size + 2 * ALIGNMENT + past, np.uint8)
    start = -room.ctypes.data % ALIGNMENT + past
    return room[start : start + size]


def read_only_map(raw: np.ndarray) -> mmap.mmap:
    """A file with these bytes, mapped so that a write kills the process."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(raw.tobytes())
    with open(file.name, "rb") as file:
        made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    os.unlink(file.name)
    return made


def poke(address: int) -> None:
    """Flips the lowest bit of the byte at an address."""
    byte = ctypes.c_ubyte.from_address(address)
    byte.value ^= 1


def churn(size: int) -> list[np.ndarray]:
    """Takes and fills memory of this size, so that memory that was let go does not keep its
    values."""
    return [np.full(size, 0xA5, np.uint8) for _ in range(64)]
