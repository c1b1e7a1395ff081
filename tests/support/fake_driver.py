"""Child processes that use CuPy with a fake CUDA driver."""

from __future__ import annotations

import os
from pathlib import Path

from support import subprocesses

DRIVER = Path(subprocesses.TESTS).parent / "target" / "testdriver"
STANDIN = Path(subprocesses.TESTS) / "support" / "standin"

# What every child knows.
SETUP = """
import ctypes, gc
import cupy
import numpy as np
import tensorferry as ferry

driver = cupy.driver
driver.testdriver_calls.restype = ctypes.c_uint64
driver.testdriver_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]

def on_gpu(array, device=0):
    array = np.ascontiguousarray(array)
    with cupy.cuda.Device(device):
        x = cupy.empty(array.shape, array.dtype)
        x.set(array)
        cupy.cuda.get_current_stream().synchronize()
    return x
"""


def environment() -> dict[str, str]:
    """The variables with which a process loads the fake driver and the CuPy for it."""
    paths = (str(STANDIN), subprocesses.TESTS, os.environ.get("PYTHONPATH"))
    return {
        "LD_LIBRARY_PATH": str(DRIVER),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def run_program(name: str, *arguments: str, **variables: str) -> str:
    """Runs a file of tests/programs with the fake driver; `support.fake_gpu` is for these."""
    return subprocesses.run_program(name, *arguments, **environment(), **variables)


def run(*code: str, **variables: str) -> str:
    """Runs pieces of code, one after the other, in a fresh interpreter."""
    return subprocesses.run(
        "\n".join(subprocesses.textwrap.dedent(piece) for piece in code),
        **environment(),
        **variables,
    )


# What those know besides who look at transfers.
TRANSFERS = """
import asyncio, functools, signal, threading

driver.testdriver_fail_for_good.argtypes = [ctypes.c_char_p, ctypes.c_int]
driver.testdriver_registered.restype = ctypes.c_size_t
driver.testdriver_busy.restype = ctypes.c_size_t
KIB, MIB = 1 << 10, 1 << 20
random = np.random.default_rng(7)

def calls(name):
    return driver.testdriver_calls(name.encode())

def numbers(*shape):
    return random.standard_normal(shape, dtype=np.float32)

def strided(x, view, base):
    '''A view of a host array, as the same view of its copy on the GPU.'''
    place = cupy.cuda.MemoryPointer(x.data.mem, view.ctypes.data - base.ctypes.data)
    return cupy.ndarray(view.shape, view.dtype, place, view.strides)
"""


def run_transfers(code: str, **environment: str) -> str:
    """The same for tests of transfers."""
    return run(SETUP, TRANSFERS, code, **environment)
