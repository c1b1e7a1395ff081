"""Memory is released under the GIL, whether or not the framework that releases it holds the GIL."""

from __future__ import annotations

import ctypes
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
from support.blocked_threads import run_while_this_thread_is_blocked
from support.dtypes import NAMED
from support.foreign_threads import exits_without_the_interpreter
from support.memory import aligned
from support.share_counts import soon

import tensorferry as ferry


class Node:
    """A node of trees, whose flatten function runs below `ferry.to`."""


class CountedArray(np.ndarray):
    """An array that runs Python code when it dies."""

    died = 0

    def __del__(self):
        # Enough to need the interpreter: objects are made, and freed.
        type(self).died += len([str(number) for number in range(100)]) == 100


def test_an_array_that_jax_releases_below_one_of_our_own_calls():
    # JAX releases the GIL while it destroys an array. Here that happens inside a call of ours, so
    # that the thread looks attached to anybody who only counts calls.
    CountedArray.died = 0
    held = []

    def fill():
        held.append(ferry.to(aligned(16, np.float32).view(CountedArray), "jax", copy=False))

    def flatten(node):
        held.clear()
        return [], None

    ferry.register_container(Node, flatten, lambda rest, children: None)
    rounds = 200
    for _ in range(rounds):
        fill()
        ferry.to(Node(), "numpy")
    gc.collect()
    assert not held
    assert CountedArray.died >= rounds


def test_a_base_dies_when_the_last_framework_lets_go():
    class Owner(np.ndarray):
        pass

    for target in ("torch", "jax", "tensorflow", "paddle"):
        room = aligned(128, np.float32).view(Owner)
        watch = weakref.ref(room)
        share = ferry.to(room[:16], target, copy=False)
        del room
        gc.collect()
        assert watch() is not None, target
        del share
        gc.collect()
        # TensorFlow gives up the GIL and may hold a lock, so the drop thread releases the array.
        assert soon(lambda watch=watch: watch() is None), target


class Room(np.ndarray):
    """An array whose death can be watched."""


def room() -> np.ndarray:
    """Sixteen numbers, aligned for everybody."""
    numbers = aligned(16, np.float32)
    numbers[:] = np.arange(16)
    return numbers.view(Room)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def produced(array: np.ndarray) -> capsules.Producer:
    float32 = NAMED["float32"]
    return capsules.VersionedProducer(float32, array.ctypes.data, array.shape, (1,), owner=array)


# What is kept alive: an object, a mark and an object, an exported buffer, and tensors that
# frameworks handed over, whose deleters take the interpreter. TensorFlow and MLX have copied the
# array; of theirs, only that the thread ends is to be seen. Paddle's are copied (below); here one
# is behind an array.
RETAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda array: array,
    "numpy, read-only": read_only,
    "memoryview": memoryview,
    "__dlpack__": produced,
    "torch": torch.from_numpy,
    "torch by DLPack": torch.from_dlpack,
    "paddle by DLPack, as an array": lambda array: ferry.to(paddle.from_dlpack(array), "numpy"),
    "jax": jax.dlpack.from_dlpack,
    "tensorflow": tf.experimental.numpy.asarray,
    "mlx": mx.array,
}


@pytest.fixture(scope="module")
def retain() -> str:
    """A framework whose tensors are the capsules that it was given."""
    ferry.register_framework(
        "keeper",
        types=[type("Kept", (), {})],
        read=lambda tensor: tensor,
        write=lambda parcel: parcel.__dlpack__(max_version=(1, 1)),
        immutable=True,
        alignment=1,
    )
    return "keeper"


@pytest.mark.parametrize("kept", RETAINERS)
def test_a_thread_of_a_framework_lets_go_while_another_has_the_interpreter(kept, retain):
    """The thread may hold a lock for which the other waits: it must not wait in turn."""
    array = room()
    watch = weakref.ref(array)
    given = RETAINERS[kept](array)
    deleter, managed = capsules.taken(ferry.to(given, retain, copy=False))
    del array, given
    assert exits_without_the_interpreter(deleter, managed)
    assert soon(lambda: watch() is None)


def test_a_release_on_such_a_thread_does_not_wait_for_the_main_thread(retain):
    """The main thread may be in one long call, and nobody may call us again."""
    seen = []

    def work():
        array = room()
        watch = weakref.ref(array)
        deleter, managed = capsules.taken(ferry.to(array, retain))
        del array
        seen.append(exits_without_the_interpreter(deleter, managed))
        seen.append(soon(lambda: watch() is None))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, True]


@pytest.mark.parametrize("target", ["jax", "tensorflow", "keeper"])
def test_paddle_tensors_are_copied_to_frameworks_that_release_on_their_own_threads(target, retain):
    """Paddle cannot say whether it would call a foreign deleter under its lock."""
    for made in (paddle.ones([16]), paddle.from_dlpack(room())):
        plan = ferry.plan(made, target)
        assert plan.action == "copy"
        assert "under a lock" in str(plan)
        with pytest.raises(ferry.CopyRequiredError, match="hint:"):
            ferry.to(made, target, copy=False)


class Traced(np.ndarray):
    """An array that tells on which thread it died."""

    died_on: ClassVar[list[int]] = []

    def __del__(self):
        self.died_on.append(threading.get_ident())


def drop_paddle_tensor_without_the_interpreter(retain: str) -> bool:
    """A Paddle tensor over a traced array, kept by an array, released by a thread that Python did
    not create."""
    through_paddle = ferry.to(paddle.from_dlpack(room().view(np.ndarray).view(Traced)), "numpy")
    deleter, managed = capsules.taken(ferry.to(through_paddle, retain, copy=False))
    del through_paddle
    return exits_without_the_interpreter(deleter, managed)


def test_the_main_loop_releases_tensors_of_paddle(retain):
    """Never a thread of ours: another thread may have Paddle's lock and want the GIL back."""
    Traced.died_on.clear()
    assert drop_paddle_tensor_without_the_interpreter(retain)
    assert soon(lambda: Traced.died_on)
    assert Traced.died_on == [threading.main_thread().ident]


def test_a_call_releases_tensors_of_paddle_while_the_main_thread_waits(retain):
    def work():
        Traced.died_on.clear()
        assert drop_paddle_tensor_without_the_interpreter(retain)
        assert Traced.died_on == []
        ferry.to(np.zeros(3), "torch")
        assert Traced.died_on == [threading.get_ident()]

    run_while_this_thread_is_blocked(work)


def test_a_thread_without_paddle_releases_no_tensor_of_paddle(retain):
    """In a program with one thread that uses Paddle, no other takes Paddle's lock."""

    def work():
        Traced.died_on.clear()
        assert drop_paddle_tensor_without_the_interpreter(retain)
        other = threading.Thread(target=lambda: ferry.to(np.zeros(3), "torch"))
        other.start()
        other.join()
        assert Traced.died_on == []
        ferry.empty_cache()
        assert Traced.died_on == [threading.get_ident()]

    run_while_this_thread_is_blocked(work)


def test_a_full_list_of_pending_calls_delays_a_release_only(retain):
    """The main loop keeps 32 requests of all libraries."""
    add = ctypes.pythonapi.Py_AddPendingCall
    add.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    nothing = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p)

    def work():
        Traced.died_on.clear()
        for _ in range(1000):
            if add(nothing, None) != 0:
                break
        else:
            raise AssertionError("the list is never full")
        assert drop_paddle_tensor_without_the_interpreter(retain)
        # The drop thread empties the other queue, and asks the main loop in vain.
        array = room()
        watch = weakref.ref(array)
        deleter, managed = capsules.taken(ferry.to(array, retain))
        assert Traced.died_on == [threading.get_ident()]
        Traced.died_on.clear()
        del array
        assert drop_paddle_tensor_without_the_interpreter(retain)
        assert exits_without_the_interpreter(deleter, managed)
        assert soon(lambda: watch() is None)
        assert Traced.died_on == []

    run_while_this_thread_is_blocked(work)
    assert soon(lambda: Traced.died_on)
    assert Traced.died_on == [threading.main_thread().ident]


def test_a_python_thread_without_the_interpreter_does_not_wait_for_it(retain):
    """It may hold a lock of the framework that gave up the GIL."""
    array = room()
    watch = weakref.ref(array)
    deleter, managed = capsules.taken(ferry.to(array, retain))
    del array
    # ctypes gives up the GIL around the call of a function of this kind.
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)
    assert soon(lambda: watch() is None)


RELEASES_THE_GIL = ("torch", "jax")


@pytest.mark.parametrize("target", RELEASES_THE_GIL)
def test_memory_is_released_with_the_tensor_on_any_python_thread(target):
    """These frameworks give up the GIL when a tensor dies, and hold no lock then."""

    def work():
        for _ in range(100):
            array = room()
            watch = weakref.ref(array)
            share = ferry.to(array, target, copy=False)
            del array
            assert watch() is not None
            del share
            assert watch() is None

    work()
    run_while_this_thread_is_blocked(work)


@pytest.mark.parametrize("target", RELEASES_THE_GIL)
def test_the_framework_holds_no_lock_while_it_releases_a_tensor(target):
    """A release waits for the GIL there, which a thread may have that wants such a lock."""

    def use() -> None:
        share = ferry.to(room(), target, copy=False)
        assert float((share + share)[3]) == 6
        del share

    class Uses(np.ndarray):
        """An array at whose death another thread makes, uses and releases tensors."""

        used = 0

        def __del__(self):
            run_while_this_thread_is_blocked(use)
            Uses.used += 1

    for _ in range(20):
        share = ferry.to(room().view(Uses), target, copy=False)
        float((share + share)[3])
        del share
    assert soon(lambda: Uses.used >= 20)


def test_tensorflow_releases_an_old_value_under_the_lock_of_its_variable():
    """So a release there must not wait for the GIL, nor run Python code."""
    read = []

    class Reads(np.ndarray):
        """An array at whose death the variable is read."""

        def __del__(self):
            read.append(float(variable.read_value()[0]))

    variable = tf.Variable(ferry.to(room().view(Reads), "tensorflow", copy=False))
    variable.assign(tf.ones(16))
    assert soon(lambda: read)
    assert read[-1] == 1


def test_memory_that_paddle_releases_is_not_released_under_its_lock():
    """A release that led back to Paddle would wait for its lock for ever."""
    inner = ferry.to(room(), "paddle")

    class Holder(np.ndarray):
        def __del__(self):
            held.clear()

    held = [inner]
    del inner
    array = np.zeros(16, np.float32).view(Holder)
    outer = ferry.to(array, "paddle")
    del array
    del outer
    assert soon(lambda: not held)


def test_sources_of_jobs_are_gone_with_the_result():
    """Bytes move on a thread of our own, which releases the source."""
    seen = []

    def work():
        for _ in range(20):
            array = room()
            watch = weakref.ref(array)
            job = ferry.to_async(array, "numpy", out=np.empty_like(array))
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


def release(names: range, retain: str) -> None:
    """On threads that Python does not know, one after the other."""
    for name in names:
        array = room().view(Named)
        array.name = name
        deleter, managed = capsules.taken(ferry.to(array, retain))
        del array
        assert exits_without_the_interpreter(deleter, managed)


def test_the_first_is_released_first(retain):
    Named.told.clear()
    # More than the interpreter's main loop keeps options.
    release(range(1, 101), retain)
    assert soon(lambda: len(Named.told) == 100)
    assert Named.told == list(range(1, 101))


def test_the_child_of_a_fork_leaves_what_waits_to_its_parent(retain):
    for turn in range(20):
        Named.told.clear()
        release(range(1, 4), retain)
        child = os.fork()
        if child == 0:
            before = len(Named.told)
            ferry.to(np.zeros(3), "torch")
            # The first is released first: what the child had inherited would come before these.
            release(range(4, 6), retain)
            seen = soon(lambda: Named.told[-2:] == [4, 5])
            os._exit((len(Named.told) - before - 2) * 10 + seen)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 1, turn
        assert soon(lambda: Named.told == [1, 2, 3])
