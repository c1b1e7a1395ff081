"""Imports tensorferry, and makes the first calls, on eight threads at once."""

from __future__ import annotations

import array
import threading

barrier = threading.Barrier(8)
done: list[int] = []


def body(number: int) -> None:
    """What each thread does."""
    barrier.wait()
    import tensorferry as ferry

    name = "numpy" if number % 2 else "mlx"
    x = ferry.to(array.array("f", range(number, number + 9)), name)
    assert x.tolist() == list(range(number, number + 9))
    done.append(number)


threads = [threading.Thread(target=body, args=(n,)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sorted(done) == list(range(8)), done
