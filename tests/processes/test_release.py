"""Memory is given back under the GIL, whatever the framework that lets go has done with it."""

import gc
import weakref

import numpy as np

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
