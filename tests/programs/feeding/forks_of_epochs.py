"""Uses and closes an epoch in children of a fork."""

from __future__ import annotations

import sys

import numpy as np
from support import forks
from support.errors import raised

import tensorferry as ferry

COUNT = 6


def main() -> None:
    feed = ferry.feed([np.full(3, number) for number in range(3)], "numpy", copy=True)
    epoch = iter(feed)
    next(epoch)

    def use() -> None:
        print(raised(ferry.InvalidArgumentError, next, epoch))
        epoch.close()
        feed.close()
        print("child has a new epoch", *(batch[0] for batch in feed), flush=True)

    # The first child leaves through the functions at exit.
    sys.stdout.flush()
    forks.wait(forks.fork(use, leave=sys.exit))
    print("parent goes on", *(batch[0] for batch in epoch), flush=True)

    # The feeder may have the lock of the queue at the moment of a fork.
    busy = iter(ferry.feed((np.zeros(3) for _ in range(100_000)), "numpy", prefetch=100_000))

    def close() -> None:
        raised(ferry.InvalidArgumentError, next, busy)
        busy.close()

    for _ in range(COUNT):
        next(busy)
        forks.wait(forks.fork(close, leave=sys.exit))
    print("children while the feeder runs", COUNT)


if __name__ == "__main__":
    main()
