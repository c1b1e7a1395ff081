"""The programs that `tests/stress/run.py` starts: `python programs.py PROGRAM SECONDS COUNT_FILE`.

A program ends after its time with status 0. Which memory is imported into Paddle by hand matters:
Paddle calls the deleters of imported memory under a process-wide lock. A deleter that gives up the
GIL there (PyTorch's, for memory of NumPy's) hangs a program that uses Paddle on two Python threads,
with or without tensorferry. So memory is imported by hand only where one Python thread uses Paddle.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import itertools
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Paddle before TensorFlow: the other order ends the process.
import paddle  # isort: skip
import jax
import jax.numpy as jnp
import mlx.core as mx
import tensorflow as tf
import torch

import tensorferry as ferry

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")
# Large enough that XLA computes, and releases its inputs, on its own threads.
SIZES = (16, 4096, 1 << 17)
COUNT = struct.Struct("=q")

MAKERS: dict[str, Callable[[int], Any]] = {
    "numpy": lambda size: np.ones(size, np.float32),
    "torch": torch.ones,
    "jax": lambda size: jnp.ones(size, jnp.float32),
    "tensorflow": lambda size: tf.ones(size, tf.float32),
    "paddle": lambda size: paddle.ones([size]),
    "mlx": lambda size: mx.ones(size),
}

# Paddle tensors over memory that Paddle imported without tensorferry.
HAND_IMPORTS: tuple[Callable[[int], Any], ...] = (
    lambda size: paddle.from_dlpack(np.ones(size, np.float32)),
    lambda size: paddle.from_dlpack(torch.from_numpy(np.ones(size, np.float32))),
    lambda size: paddle.from_dlpack(jnp.ones(size, jnp.float32)),
)

# A computation that still uses its argument when the call returns: the last reference is XLA's.
_twice = jax.jit(lambda x: x * 2 + jnp.sin(x))


def use(tensor: Any) -> None:
    """Lets the framework compute with the tensor, and drops the result."""
    if isinstance(tensor, jax.Array):
        _twice(tensor)
    elif isinstance(tensor, tf.Tensor):
        tf.reduce_sum(tensor * 2)
    else:
        tensor.sum()


def travel(rng: random.Random, tensor: Any, hops: int) -> None:
    """Carries the tensor on, uses every result, and drops them in any order."""
    held = [tensor]
    del tensor
    for _ in range(hops):
        held.append(ferry.to(held[-1], rng.choice(FRAMEWORKS)))
        use(held[-1])
    rng.shuffle(held)
    while held:
        held.pop()


class Counter:
    """The count of rounds that the watchdog reads, and the end of the program."""

    def __init__(self, path: str, seconds: float) -> None:
        file = os.open(path, os.O_RDWR)
        self._map = mmap.mmap(file, COUNT.size)
        os.close(file)
        self._lock = threading.Lock()
        self._end = time.monotonic() + seconds

    def round(self) -> bool:
        """Counts a round; whether there is time for another."""
        with self._lock:
            (count,) = COUNT.unpack_from(self._map)
            COUNT.pack_into(self._map, 0, count + 1)
        return time.monotonic() < self._end


def trip(rng: random.Random) -> None:
    """A tensor of any framework, carried one to three hops."""
    travel(rng, MAKERS[rng.choice(FRAMEWORKS)](rng.choice(SIZES)), rng.randint(1, 3))


def paddle_trip(rng: random.Random) -> None:
    """The same from Paddle, also over memory that Paddle imported by hand."""
    make = rng.choice((MAKERS["paddle"], *HAND_IMPORTS))
    travel(rng, make(rng.choice(SIZES)), rng.randint(1, 3))


def block_main_thread(threads: list[threading.Thread], blocks: str) -> None:
    """Waits for the threads in one call that runs no Python code: of Python, or of C."""
    done = threading.Event()

    def finish() -> None:
        for thread in threads:
            thread.join()
        done.set()
        os.write(writing, b"x")

    reading, writing = os.pipe()
    for thread in threads:
        thread.start()
    threading.Thread(target=finish, daemon=True).start()
    if blocks == "event":
        done.wait()
    else:
        # A CDLL function is called without the GIL.
        ctypes.CDLL(None).read(reading, ctypes.create_string_buffer(1), 1)
    os.close(reading)
    os.close(writing)


def worker(counter: Counter, seed: int, work: Callable[[random.Random], None]) -> threading.Thread:
    """A thread that repeats the work."""

    def repeat() -> None:
        rng = random.Random(seed)
        try:
            while counter.round():
                work(rng)
        except BaseException:
            faulthandler.dump_traceback(all_threads=False)
            sys.excepthook(*sys.exc_info())
            os._exit(3)

    return threading.Thread(target=repeat, daemon=True)


def all_directions(counter: Counter) -> None:
    """One thread: every framework to every other, and Paddle over imported memory."""
    rng = random.Random(1)
    while counter.round():
        trip(rng)
        paddle_trip(rng)


def main_blocked(counter: Counter) -> None:
    """The main thread is in one long call; three threads carry tensors between all frameworks."""
    block_main_thread([worker(counter, seed, trip) for seed in range(3)], "event")


def paddle_worker(counter: Counter) -> None:
    """The main thread is in one long C call; one thread uses Paddle over imported memory, another
    uses the other frameworks."""
    others = [name for name in FRAMEWORKS if name != "paddle"]

    def without_paddle(rng: random.Random) -> None:
        tensor = MAKERS[rng.choice(others)](rng.choice(SIZES))
        use(ferry.to(tensor, rng.choice(others)))

    threads = [worker(counter, 1, paddle_trip), worker(counter, 2, without_paddle)]
    block_main_thread(threads, "read")


def gc_loop(counter: Counter) -> None:
    """Tensors die in reference cycles, collected by a thread that does nothing else."""

    # What the frameworks made at import is not walked through each time.
    gc.collect()
    gc.freeze()

    def cycle(rng: random.Random) -> None:
        ring: list[Any] = [MAKERS[rng.choice(FRAMEWORKS)](rng.choice(SIZES))]
        ring.extend(ferry.to(ring[0], target) for target in rng.sample(FRAMEWORKS, 2))
        for tensor in ring:
            use(tensor)
        ring.append(ring)

    def collect(rng: random.Random) -> None:
        gc.collect(rng.randint(0, 2))

    threads = [worker(counter, seed, cycle) for seed in range(2)]
    threads.append(worker(counter, 2, collect))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# XLA's and TensorFlow's threads do not exist in the child of a fork, so it uses the others.
FRAMEWORKS_AFTER_FORK = ("numpy", "torch", "paddle")


def child_of_fork(rng: random.Random) -> None:
    """What a child does."""
    names = FRAMEWORKS_AFTER_FORK
    for _ in range(5):
        tensor = MAKERS[rng.choice(names)](rng.choice(SIZES[:2]))
        ferry.to(ferry.to(tensor, rng.choice(names)), rng.choice(names))


def use_frameworks_once() -> None:
    """Runs what a child runs, on this thread.

    Paddle initialises static variables of C++ in the first call of each operator. A fork during
    that, on another thread, leaves them locked in the child, with or without tensorferry.
    """
    for name, target, last in itertools.product(FRAMEWORKS_AFTER_FORK, repeat=3):
        ferry.to(ferry.to(MAKERS[name](SIZES[0]), target), last)


def after_fork(counter: Counter) -> None:
    """Children are forked while other threads release tensors."""
    use_frameworks_once()
    threads = [worker(counter, 1, trip)]
    for thread in threads:
        thread.start()
    rng = random.Random(2)
    while counter.round():
        seed = rng.random()
        child = os.fork()
        if child == 0:
            try:
                child_of_fork(random.Random(seed))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(3)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            raise SystemExit(f"a child ended with {os.waitstatus_to_exitcode(status)}")
    for thread in threads:
        thread.join()


def at_exit(counter: Counter) -> None:
    """Children exit as Python programs do, while tensors are being released."""
    rng = random.Random(3)
    while counter.round():
        seed = rng.random()
        child = os.fork()
        if child == 0:
            rng = random.Random(seed)
            held = []
            for _ in range(rng.randint(1, 6)):
                paddle_trip(rng)
                trip(rng)
                held.append(ferry.to(MAKERS["paddle"](SIZES[-1]), rng.choice(FRAMEWORKS)))
            globals()["held_until_the_end"] = held
            # Leaves through the interpreter's finalisation.
            raise SystemExit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            raise SystemExit(f"a child ended with {os.waitstatus_to_exitcode(status)}")


def main() -> None:
    program, seconds, path = sys.argv[1:]
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    counter = Counter(path, float(seconds))
    counter.round()
    run = {
        function.__name__: function
        for function in (all_directions, main_blocked, paddle_worker, gc_loop, after_fork, at_exit)
    }
    run[program](counter)


if __name__ == "__main__":
    main()
