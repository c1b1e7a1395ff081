"""A million conversions, and the memory of the process is flat."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys

import numpy as np
import pytest
from support.refusals import TARGETS, refused

import tensorferry as ferry

pytestmark = pytest.mark.leak

MIB = 1 << 20
# What allocators and caches take now and then. A leak of 32 bytes a trip shows.
SLACK = 3 * MIB


@pytest.fixture(autouse=True, scope="module")
def _quick_collections():
    """What the frameworks made at import is left out of every collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def resident() -> int:
    gc.collect()
    ferry.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grows(body, rounds: int, warm_up: int | None = None) -> int:
    """How many bytes the process gains over `rounds` of `body`, once warm. Where that is much,
    the rounds after those: an allocator may take more once, a leak takes it again."""
    for _ in range(warm_up or rounds // 10):
        body()
    for _ in range(2):
        before = resident()
        for _ in range(rounds):
            body()
        gained = resident() - before
        if gained < SLACK:
            break
    return gained


def source(name: str, count: int = 16):
    """A tensor whose memory every framework can share."""
    array = ferry.to(np.arange(count, dtype=np.float32), "numpy", copy=True)
    assert array.ctypes.data % 64 == 0
    return array if name == "numpy" else ferry.to(array, name, copy=True)


def test_a_million_round_trips():
    array = source("numpy")
    before = sys.getrefcount(array)

    def trip():
        ferry.to(ferry.to(array, "torch"), "numpy")

    assert grows(trip, 1_000_000) < SLACK
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(TARGETS, 2)))
def test_shares_of_every_pair(one, other):
    tensor = source(one)
    before = sys.getrefcount(tensor)
    assert grows(lambda: ferry.to(tensor, other), 100_000) < SLACK
    ferry.to(np.ones(1), "torch")
    assert sys.getrefcount(tensor) == before


@pytest.mark.parametrize("target", TARGETS)
def test_copies(target):
    """64 KiB twenty thousand times: a leak of one in four hundred would show."""
    array = source("numpy", 16384)
    assert grows(lambda: ferry.to(array, target, copy=True), 20_000, 2000) < SLACK
    strided = source("numpy", 32768)[::2]
    assert grows(lambda: ferry.to(strided, target, dtype="float16"), 2000) < SLACK


def test_other_sources_and_arguments():
    import jax.numpy as jnp
    import tensorflow as tf
    import torch

    big_endian = np.arange(16, dtype=">f4")
    frozen = source("numpy")
    frozen.flags.writeable = False
    parameter = torch.nn.Parameter(torch.ones(16))
    variable = tf.Variable(tf.ones(16))
    conjugate = torch.ones(16, dtype=torch.complex64).conj()
    out = np.zeros(16, np.float32)
    kept = np.arange(16, dtype=np.float32)
    stories = {
        "bytes": lambda: ferry.to(b"0123456789abcdef", "numpy"),
        "bytearray": lambda: ferry.to(bytearray(64), "torch"),
        "memoryview": lambda: ferry.to(memoryview(kept), "numpy"),
        "frozen to jax and back": lambda: ferry.to(ferry.to(frozen, "jax"), "torch"),
        "frozen to tensorflow": lambda: ferry.to(ferry.to(frozen, "tensorflow"), "numpy"),
        "swapped": lambda: ferry.to(big_endian, "torch"),
        "parameter": lambda: ferry.to(parameter, "numpy"),
        "conjugate": lambda: ferry.to(conjugate, "numpy"),
        "variable": lambda: ferry.to(variable, "numpy"),
        "0-d": lambda: ferry.to(tf.constant(1.0), "numpy"),
        "empty": lambda: ferry.to(np.zeros((0, 3), np.float32), "torch"),
        "int4": lambda: ferry.to(jnp.zeros(16, jnp.int4), "numpy"),
        "bfloat16": lambda: ferry.to(kept, "numpy", dtype="bfloat16"),
        "out": lambda: ferry.to(kept, "numpy", out=out),
        "tree": lambda: ferry.to({"a": [kept, (kept, 3)], "b": kept}, "torch"),
        "plan": lambda: str(ferry.plan({"a": kept, "b": kept[::-1]}, "jax")),
        "names": lambda: ferry.to(kept, "".join(("to", "rch")), dtype=np.dtype("f2"), device="cpu"),
    }
    grown = {name: grows(story, 4000) for name, story in stories.items()}
    assert max(grown.values()) < SLACK, grown


def test_traces_and_errors():
    kept = np.arange(16, dtype=np.float32)

    def trace():
        with ferry.trace() as trips:
            ferry.to(kept, "torch")
        assert len(trips) == 1

    def error(x, **options):
        def story():
            try:
                ferry.to(x, "torch", **options)
            except ferry.FerryError:
                return
            raise AssertionError("nothing was raised")

        return story

    loop = []
    loop.append(loop)
    stories = {
        "trace": trace,
        "copy required": error(kept[::-1], copy=False),
        "no tensor": error(3),
        "no such type": error(np.array(["a"])),
        "in a tree": error({"a": [kept, np.array(["a"])]}),
        "no such dtype": error(kept, dtype="float33"),
        "out": error(kept, out=kept),
    }
    before = sys.getrefcount(kept)
    grown = {name: grows(story, 10_000) for name, story in stories.items()}
    assert max(grown.values()) < SLACK, grown
    assert sys.getrefcount(kept) == before
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.to(loop, "torch"))


def test_types_that_come_and_go():
    """What is remembered for each type does not pile up when the types die."""
    kept = np.arange(16, dtype=np.float32)

    def story():
        kind = type("Passing", (np.ndarray,), {})
        ferry.to(kept.view(kind), "torch")
        ferry.to([kept, type("Leaf", (), {})()], "torch")

    assert grows(story, 5000) < SLACK


def test_results_that_outlive_their_source_are_freed_with_it():
    """Blocks of 8 MiB: the memory comes back at once, whoever goes first."""
    before = resident()
    for target in TARGETS:
        for order in (0, 1):
            array = ferry.to(np.ones(2 * MIB, np.float32), "numpy", copy=True)
            pair = [array, ferry.to(array, target)]
            del array
            pair.pop(order)
            assert float(ferry.to(pair[0], "numpy")[-1]) == 1
            pair.clear()
    ferry.to(np.ones(1), "torch")
    assert resident() - before < 12 * MIB


def test_a_leak_would_show():
    held = []
    # Small enough to be a leak of ours, large enough that no free memory of the process takes it.
    assert grows(lambda: held.append(bytearray(256)), 100_000) > SLACK
