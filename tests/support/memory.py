"""Blocks of memory at chosen addresses, and a way to change a byte behind everybody's back."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

ALIGNMENT = 64


def aligned(
    shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.uint8, *, past: int = 0
) -> np.ndarray:
    """Zeros that start `past` bytes after a multiple of 64, in ordinary memory of NumPy's.

    Whoever asks where the memory came from is told that it is aligned by chance.
    """
    size = math.prod(np.atleast_1d(shape).tolist()) * np.dtype(dtype).itemsize
    room = np.zeros(size + ALIGNMENT + past, np.uint8)
    start = bytes_to_boundary(room) + past
    return room[start : start + size].view(dtype).reshape(shape)


def bytes_to_boundary(buffer: Buffer) -> int:
    """How many bytes of a buffer lie before the first multiple of 64."""
    return -np.frombuffer(buffer, np.uint8).ctypes.data % ALIGNMENT


def read_only_map(raw: np.ndarray) -> mmap.mmap:
    """A file with these bytes, mapped so that a write kills the process."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(raw.tobytes())
    with open(file.name, "rb") as file:
        made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    os.unlink(file.name)
    return made


def poke(address: int, device: str = "cpu") -> None:
    """Flips the lowest bit of the byte at an address."""
    if device != "cpu":
        return _poke_gpu(address)
    byte = ctypes.c_ubyte.from_address(address)
    byte.value ^= 1
    return None


def _poke_gpu(address: int) -> None:
    """The same by the driver, which waits for everything that is queued."""
    driver = ctypes.CDLL("libcuda.so.1")
    byte, place = ctypes.c_ubyte(), ctypes.c_uint64(address)
    assert driver.cuCtxSynchronize() == 0
    assert driver.cuMemcpyDtoH_v2(ctypes.byref(byte), place, ctypes.c_size_t(1)) == 0
    byte.value ^= 1
    assert driver.cuMemcpyHtoD_v2(place, ctypes.byref(byte), ctypes.c_size_t(1)) == 0
    assert driver.cuCtxSynchronize() == 0


def churn(size: int) -> list[np.ndarray]:
    """Takes and fills memory of this size, so that released memory does not keep its values."""
    return [np.full(size, 0xA5, np.uint8) for _ in range(64)]
