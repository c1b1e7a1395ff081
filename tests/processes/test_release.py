"""Memory is given back under the GIL, whatever the framework that lets go has done with it."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import mlx.core as mx
import numpy as np
import paddle
import pytest
import tensorflow as tf
import torch
from support import capsules
from support.dtypes import NAMED
from support.foreign_threads import ends_without_the_interpreter
from support.share_counts import soon

import tensorferry as ferry


class Node:
    """A node of trees, whose flatten function runs below `ferry.to`."""


class Watched(np.ndarray):
    """An array that runs Python code when it dies."""

    died = 0

    def __del__(self):
        # Enough to need the interpreter: objects are made, and freed.
        type(self).died += len([str(number) for number in range(100)]) == 100


def test_an_array_that_jax_releases_below_one_of_our_own_calls():
    # JAX lets go of the GIL while it destroys an array. Here that happens inside a call of ours, so
    # that the thread looks attached to anybody who only counts calls.
    Watched.died = 0
    held = []

    def fill():
        array = np.zeros(64, np.float32).view(Watched)
        start = -array.ctypes.data % 64 // 4
        held.append(ferry.to(array[start : start + 16], "jax"))

    def flatten(node):
        held.clear()
        return [], None

    ferry.register_tree(Node, flatten, lambda rest, children: None)
    rounds = 200
    for _ in range(rounds):
        fill()
        ferry.to(Node(), "numpy")
    gc.collect()
    assert not held
    assert Watched.died >= rounds


def test_a_base_dies_when_the_last_framework_lets_go():
    class Owner(np.ndarray):
        pass

    for target in ("torch", "jax", "tensorflow", "paddle"):
        room = np.zeros(128, np.float32).view(Owner)
        start = -room.ctypes.data % 64 // 4
        watch = weakref.ref(room)
        share = ferry.to(room[start : start + 16], target)
        del room
        gc.collect()
        assert watch() is not None, target
        del share
        gc.collect()
        assert watch() is None, target


class Room(np.ndarray):
    """An array whose death can be watched."""


def room() -> np.ndarray:
    """Sixteen numbers, aligned for everybody."""
    whole = np.zeros(64, np.float32)
    start = -whole.ctypes.data % 64 // 4
    whole[start : start + 16] = np.arange(16)
    return whole[start : start + 16].view(Room)


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def produced(array: np.ndarray) -> capsules.Producer:
    float32 = NAMED["float32"]
    return capsules.VersionedProducer(float32, array.ctypes.data, array.shape, (1,), owner=array)


# What is kept alive: an object, a mark and an object, an exported buffer, and tensors that
# frameworks handed over, whose deleters take the interpreter, Paddle's under a lock. TensorFlow and
# MLX have copied the array; of theirs, only that the thread ends is to be seen.
KEPT: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda array: array,
    "numpy, read-only": frozen,
    "memoryview": memoryview,
    "__dlpack__": produced,
    "torch": torch.from_numpy,
    "torch by DLPack": torch.from_dlpack,
    "paddle by DLPack": paddle.from_dlpack,
    "jax": jax.dlpack.from_dlpack,
    "tensorflow": tf.experimental.numpy.asarray,
    "mlx": mx.array,
}


@pytest.fixture(scope="module")
def keeper() -> str:
    """A framework whose tensors are the capsules that it was given."""
    ferry.register(
        "keeper",
        types=[type("Kept", (), {})],
        read=lambda tensor: tensor,
        write=lambda parcel: parcel.__dlpack__(max_version=(1, 1)),
        immutable=True,
        alignment=1,
    )
    return "keeper"


@pytest.mark.parametrize("kept", KEPT)
def test_a_thread_of_a_framework_lets_go_while_another_has_the_interpreter(kept, keeper):
    """The thread may hold a lock for which the other waits: it must not wait in turn."""
    array = room()
    watch = weakref.ref(array)
    given = KEPT[kept](array)
    deleter, managed = capsules.taken(ferry.to(given, keeper, copy=False))
    del array, given
    assert ends_without_the_interpreter(deleter, managed)
    assert soon(lambda: watch() is None)


def test_what_such_a_thread_let_go_does_not_wait_for_the_main_thread(keeper):
    """The main thread may be in one long call, and nobody may call us again."""
    seen = []

    def work():
        array = room()
        watch = weakref.ref(array)
        deleter, managed = capsules.taken(ferry.to(array, keeper))
        del array
        seen.append(ends_without_the_interpreter(deleter, managed))
        seen.append(soon(lambda: watch() is None))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, True]


def test_sources_of_jobs_are_gone_with_the_result():
    """Bytes move on a thread of our own, which lets go of the source."""
    seen = []

    def work():
        for _ in range(20):
            array = room()
            watch = weakref.ref(array)
            job = ferry.start(array, "numpy", out=np.empty_like(array))
            del array
            job.result()
            del job
            seen.append(watch() is None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True] * 20


class Named(np.ndarray):
    """An array that tells of its death."""

    name = 0
    told: ClassVar[list[int]] = []

    def __del__(self):
        if self.name:
            self.told.append(self.name)


def let_go_of(names: range, keeper: str) -> None:
    """On threads that Python does not know, one after the other."""
    for name in names:
        array = room().view(Named)
        array.name = name
        deleter, managed = capsules.taken(ferry.to(array, keeper))
        del array
        assert ends_without_the_interpreter(deleter, managed)


def test_the_first_is_let_go_first(keeper):
    Named.told.clear()
    # More than the interpreter's main loop keeps wishes.
    let_go_of(range(1, 101), keeper)
    assert soon(lambda: len(Named.told) == 100)
    assert Named.told == list(range(1, 101))


def test_the_child_of_a_fork_leaves_what_waits_to_its_parent(keeper):
    for turn in range(20):
        Named.told.clear()
        let_go_of(range(1, 4), keeper)
        child = os.fork()
        if child == 0:
            before = len(Named.told)
            ferry.to(np.zeros(3), "torch")
            # The first is let go first: what the child had inherited would come before these.
            let_go_of(range(4, 6), keeper)
            seen = soon(lambda: Named.told[-2:] == [4, 5])
            os._exit((len(Named.told) - before - 2) * 10 + seen)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 1, turn
        assert soon(lambda: Named.told == [1, 2, 3])
