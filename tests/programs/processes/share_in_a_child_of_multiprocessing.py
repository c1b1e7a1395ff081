"""Publishes in a child of multiprocessing; prints how many folders the child leaves behind.

The argument is the method by which the child is started.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

import numpy as np
from support.share_counts import folders_of
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry


def work(queue: Any) -> None:
    """What the child does."""
    kept = ferry.publish(np.ones(3))
    queue.put((os.getpid(), len(folders_of(os.getpid()))))
    assert kept.pid == os.getpid()


def main() -> None:
    context: Any = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    number, count = queue.get(timeout=HANG_SECONDS)
    child.join(HANG_SECONDS)
    assert (child.exitcode, count) == (0, 1)
    print(len(folders_of(number)))


if __name__ == "__main__":
    main()
