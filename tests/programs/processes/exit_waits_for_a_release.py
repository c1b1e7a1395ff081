"""Ends while a thread is in the middle of a release, which takes until the main thread is over."""

from __future__ import annotations

import atexit
import threading
import time

# Runs after our own function at exit, which is registered by the import below.
atexit.register(print, "exit", flush=True)
from support.invalid_capsules import Producer  # noqa: E402

import tensorferry as ferry  # noqa: E402

begun = threading.Event()


class Slow(Producer):
    """A tensor whose release takes until the main thread has ended."""

    def _delete(self, address: int | None) -> None:
        begun.set()
        threading.main_thread().join()
        # The main thread has every chance to go on, and does not.
        for _ in range(1000):
            time.sleep(0)
        print("released", flush=True)


held = [ferry.to(Slow(), "numpy")]
threading.Thread(target=held.clear, daemon=True).start()
begun.wait()
print("out", flush=True)
