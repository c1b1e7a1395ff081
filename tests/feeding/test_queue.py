"""The queue between the feeder and the consumer, without either."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from support.subprocesses import HANG_SECONDS

from tensorferry.feeding import epoch


def take_from_empty(queue: epoch._Queue) -> object:
    return queue.take().is_last


def wait_while_full(queue: epoch._Queue) -> object:
    queue.put(epoch._Entry())
    return not queue.wait_for_room()


@pytest.mark.parametrize("wait_for_change", [take_from_empty, wait_while_full])
def test_close_between_the_check_and_the_wait(
    wait_for_change: Callable[[epoch._Queue], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may close the queue on the thread that is about to wait: the lock is
    reentrant, and the notification reaches nobody."""
    queue = epoch._Queue(prefetch=1)
    wait = queue._changed.wait
    timeouts: list[float | None] = []

    def close_and_wait(timeout: float | None = None) -> bool:
        queue.close()
        timeouts.append(timeout)
        return wait(timeout)

    monkeypatch.setattr(queue._changed, "wait", close_and_wait)
    found: list[object] = []
    waiter = threading.Thread(target=lambda: found.append(wait_for_change(queue)), daemon=True)
    waiter.start()
    waiter.join(HANG_SECONDS)
    has_ended = not waiter.is_alive()
    with queue._changed:
        queue._changed.notify_all()
    waiter.join(HANG_SECONDS)
    assert has_ended, "the wake-up was lost"
    assert len(timeouts) == 1, "it waits once, and then sees that the queue is closed"
    assert found == [True]
