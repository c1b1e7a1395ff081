"""Converts in children that multiprocessing starts by the methods that the arguments name."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import numpy as np
from support.subprocesses import HANG_SECONDS


def work(number: int, queue: Any) -> None:
    """What a child does."""
    import tensorferry as ferry

    x = np.full((1024, 1024), number, np.float32)
    got = ferry.to(x.T, "numpy", copy=True)
    queue.put((number, float(got.mean()), ferry.to(np.arange(3).data, "numpy")))


def main() -> None:
    import tensorferry  # noqa: F401

    for method in sys.argv[1:]:
        context: Any = multiprocessing.get_context(method)
        queue = context.Queue()
        children = [context.Process(target=work, args=(n, queue)) for n in range(2)]
        for child in children:
            child.start()
        got = sorted((queue.get(timeout=HANG_SECONDS) for _ in children), key=lambda item: item[0])
        assert [item[:2] for item in got] == [(0, 0.0), (1, 1.0)], got
        assert all(item[2].tolist() == [0, 1, 2] for item in got)
        for child in children:
            child.join(HANG_SECONDS)
            assert child.exitcode == 0, child.exitcode
    print("out")


if __name__ == "__main__":
    main()
