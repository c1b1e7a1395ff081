"""Converts before and after forks, in the parent, in children and in their children."""

from __future__ import annotations

from support.fork_work import big, work
from support.forks import fork, wait

import tensorferry as ferry

work()
held = ferry.to(big.data, "numpy"), ferry.to(big, "numpy", copy=True)


def body() -> None:
    work()
    assert (held[1] == big).all()
    wait(fork(work))


for _ in range(5):
    wait(fork(body))
    work()
print("out")
