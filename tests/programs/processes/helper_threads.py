"""Copies and casts on several threads; prints how many helper threads the process then has."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

import tensorferry as ferry


def helpers() -> int:
    """The number of helper threads of this process."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return names.count("tensorferry")


assert helpers() == 0, "none before there is work"
big = np.arange(1 << 22, dtype=np.float32).reshape(2048, 2048)


def work() -> None:
    """Copies every layout to every type."""
    for x in (big, big.T, big[::2], big[:, ::-1]):
        for dtype in (None, "float64", "float16"):
            got = ferry.to(x, "numpy", copy=True, dtype=dtype)
            assert (got[::97, ::89] == x[::97, ::89].astype(dtype or "float32")).all()


work()
callers = [threading.Thread(target=work) for _ in range(3)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
print(helpers())
