"""Forks while another thread looks MLX's functions up, which is done once.

That thread is in the middle of it, and the child does not wait for it.
"""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import mlx.core  # noqa: F401
import numpy as np
from support.forks import fork, wait

import tensorferry as ferry

real = sys.modules["mlx.core"]
entered, forked = threading.Event(), threading.Event()


class Module(types.ModuleType):
    """MLX, whose version is asked for while the first call looks its functions up."""

    @property
    def __version__(self) -> str:
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            forked.wait()
        version: str = real.__version__
        return version

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


def body() -> None:
    """What the child does."""
    assert ferry.to(np.arange(3), "mlx").tolist() == [0, 1, 2]


sys.modules["mlx.core"] = Module("mlx.core")
results: list[Any] = []
thread = threading.Thread(target=lambda: results.append(ferry.to(np.arange(3), "mlx")))
thread.start()
entered.wait()
try:
    wait(fork(body))
finally:
    forked.set()
thread.join()
assert results[0].tolist() == [0, 1, 2]
print("out")
