"""Many threads convert and drop the same tensors. Any of them may be the last to release one."""

from __future__ import annotations

import contextlib
import gc
import queue
import random
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from support import subprocesses
from support.refusals import TARGETS
from support.share_counts import soon

import tensorferry as ferry

COUNT = 256


def numbers(start: int) -> np.ndarray:
    return np.arange(start, start + COUNT, dtype=np.float32)


def in_threads(*bodies):
    """Runs the bodies at once, each in a thread, and raises what any of them raised."""
    errors = []

    def guarded(body):
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_eight_threads_carry_and_drop_the_same_tensors():
    tensors = {
        name: [ferry.to(numbers(start), name, copy=True) for start in range(4)] for name in TARGETS
    }
    frozen = numbers(0)
    frozen.flags.writeable = False
    elsewhere = queue.SimpleQueue()
    ends = []

    def carry(seed):
        chance, mine = random.Random(seed), []
        for _ in range(200):
            source, target = chance.choice(TARGETS), chance.choice(TARGETS)
            start = chance.randrange(4)
            result = ferry.to(
                tensors[source][start], target, copy=chance.choice((None, None, True))
            )
            back = ferry.to(result, "numpy")
            assert (back == numbers(start)).all(), (source, target, start)
            lent = ferry.to(frozen, target)
            assert (ferry.to(lent, "numpy") == numbers(0)).all(), target
            mine.append((result, back, lent))
            if len(mine) > 20:
                elsewhere.put(mine.pop(chance.randrange(20)))
                mine.pop(chance.randrange(20))
            with contextlib.suppress(queue.Empty):
                assert elsewhere.get_nowait()[1].shape == (COUNT,)
        ends.append(seed)

    in_threads(*(lambda seed=seed: carry(seed) for seed in range(8)))
    assert sorted(ends) == list(range(8))
    for name, group in tensors.items():
        for start, tensor in enumerate(group):
            assert (ferry.to(tensor, "numpy") == numbers(start)).all(), name


def test_large_copies_at_once():
    big = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    want = big.T.copy()

    def body():
        for _ in range(10):
            assert (ferry.to(big.T, "numpy", copy=True) == want).all()
            assert (ferry.to(big[::-1], "torch", dtype="float64").numpy() == big[::-1]).all()

    in_threads(*[body] * 8)


@pytest.mark.parametrize(("threads", "helpers"), [("1", 0), ("2", 1), ("5", 4)])
def test_no_more_threads_than_were_given(threads, helpers):
    """The caller is one of them; several callers share the helpers."""
    shown = subprocesses.run_program("processes/helper_threads.py", TENSORFERRY_THREADS=threads)
    assert shown == f"{helpers}\n"


def test_a_transpose_on_a_small_stack():
    """Rows that do not start at cache lines are put together in a buffer, which is not on it."""
    program = "processes/transpose_on_a_small_stack.py"
    assert subprocesses.run_program(program, TENSORFERRY_THREADS="1") == "True\n"


def test_others_run_while_bytes_move():
    """A large copy does not hold the interpreter: others go round many times within one."""
    big = np.zeros(64 << 20, np.uint8)
    rounds, seen, over = [0], [], threading.Event()

    def rounds_within_a_copy():
        before = rounds[0]
        ferry.to(big, "numpy", copy=True)
        return rounds[0] - before

    def copy():
        # On a busy machine the other thread may sleep through a copy, but not through all of them.
        seen.append(soon(lambda: rounds_within_a_copy() > 5))
        over.set()

    def tick():
        while not over.is_set():
            rounds[0] += 1
            time.sleep(0.0005)

    in_threads(copy, tick)
    assert seen == [True]


class Array(np.ndarray):
    """An array that can be watched."""


def counted(target):
    """A source that only the result keeps alive, and a watch on it."""
    aligned = ferry.to(numbers(0), "numpy", copy=True)
    source = aligned.view(Array)
    assert ferry.plan(source, target).shares
    return source, weakref.ref(source)


SHARING = [name for name in TARGETS if name != "mlx"]


@pytest.mark.parametrize("target", SHARING)
def test_the_result_is_dropped_by_another_thread(target):
    source, alive = counted(target)
    box = [ferry.to(source, target, copy=False)]
    if target == "numpy":
        box = [ferry.to(memoryview(source), target, copy=False)]
    del source
    gc.collect()
    assert alive() is not None, "the result keeps the memory"
    assert (ferry.to(box[0], "numpy") == numbers(0)).all()
    in_threads(box.clear)
    settle(alive)


@pytest.mark.parametrize("target", SHARING)
def test_the_source_is_dropped_by_another_thread(target):
    source, alive = counted(target)
    box = [source]
    result = ferry.to(source if target != "numpy" else memoryview(source), target, copy=False)
    del source
    in_threads(box.clear)
    gc.collect()
    assert alive() is not None, "the result keeps the memory"
    assert (ferry.to(result, "numpy") == numbers(0)).all()
    del result
    settle(alive)


def settle(alive):
    """A framework may release a moment later, and we do at the next call at the latest."""

    def released():
        gc.collect()
        ferry.to(np.ones(1), "torch")
        return alive() is None

    assert soon(released), "the memory is still held"


@pytest.mark.parametrize("source", TARGETS)
@pytest.mark.parametrize("target", TARGETS)
def test_made_here_used_and_dropped_there(source, target):
    here = ferry.to(numbers(3), source, copy=True)
    box = []

    def make():
        for _ in range(20):
            box.append(ferry.to(here, target))

    def use():
        for _ in range(20):
            assert (ferry.to(box.pop(), "numpy") == numbers(3)).all()

    in_threads(make)
    in_threads(use)
    assert not box
    assert (ferry.to(here, "numpy") == numbers(3)).all()


def test_first_use_by_many_threads_at_once():
    subprocesses.run_program("processes/first_use_by_many_threads.py")


def test_registering_while_others_carry():
    stop = threading.Event()

    def carry():
        while not stop.is_set():
            assert ferry.to(numbers(1), "torch").tolist()[0] == 1
            assert ferry.to([numbers(2)], "numpy")[0][0] == 2

    def register():
        for number in range(50):
            kind = type(f"Node{number}", (), {})
            ferry.register_container(kind, lambda node: ((), None), lambda rest, children: None)
            assert ferry.to([kind()], "numpy") == [None]
        stop.set()

    in_threads(carry, carry, register)


def test_traces_of_threads_are_their_own():
    def body():
        with ferry.trace() as trips:
            for _ in range(200):
                ferry.to(numbers(0), "torch")
        assert len(trips) == 200

    in_threads(*[body] * 8)


def test_reference_counts_are_exact_after_threads():
    x = numbers(0)
    before = sys.getrefcount(x)

    def body():
        for _ in range(500):
            ferry.to(x, "torch")
            ferry.to(ferry.to(x, "torch"), "numpy")

    in_threads(*[body] * 8)
    gc.collect()
    assert sys.getrefcount(x) == before
