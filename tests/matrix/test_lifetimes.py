"""Memory lives as long as either end of a share does, and no longer: in both orders, and on
another thread."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

import tensorferry as ferry

import jax  # isort: skip
import tensorflow as tf  # isort: skip

from matrix.make_arrays import WithInterface, WithMethod
from matrix.make_tensors import paddle_of
from support.capsules import LegacyProducer, VersionedProducer
from support.dtypes import FLOAT32
from support.introspect import FRAMEWORKS, INSPECTORS
from support.memory import ALIGNMENT, bytes_to_boundary, churn


class CountedArray(np.ndarray):
    """Memory whose end can be seen: arrays of this kind take weak references."""


VALUES = np.arange(12, dtype=np.float32)
# Releases take milliseconds. Tests that are expected to fail wait for as long.
MAX_WAIT_SECONDS = 3.0


def counted() -> tuple[weakref.ref, np.ndarray]:
    """Aligned memory with twelve floats, and a weak reference to what owns it."""
    owner = CountedArray(VALUES.nbytes + ALIGNMENT, np.uint8)
    start = bytes_to_boundary(owner)
    memory = owner.view(np.ndarray)[start : start + VALUES.nbytes].view(np.float32)
    memory[:] = VALUES
    return weakref.ref(owner), memory


def _capsule(a: np.ndarray) -> Any:
    return LegacyProducer(FLOAT32, a.ctypes.data, a.shape, (1,), a, versioned=False)


# How a source comes to lie in watched memory. MLX copies what comes in, so there is nothing to
# watch there.
SOURCES: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda a: a,
    "numpy view": lambda a: a[:],
    "torch": lambda a: torch.from_numpy(a),
    "jax": lambda a: jax.dlpack.from_dlpack(_capsule(a)),
    "tensorflow": lambda a: tf.experimental.dlpack.from_dlpack(_capsule(a).__dlpack__()),
    "paddle": lambda a: paddle_of(torch.from_numpy(a)),
    "memoryview": memoryview,
    "dlpack legacy": _capsule,
    "dlpack versioned": lambda a: VersionedProducer(FLOAT32, a.ctypes.data, a.shape, (1,), a),
    "array interface": WithInterface,
    "array method": WithMethod,
}


def carried(source: str, target: str) -> tuple[list[Any], list[Any], weakref.ref, bool]:
    """A source, its result, the memory's weak reference, and whether it was shared; the first
    two in lists, so that emptying a list releases it."""
    observe, memory = counted()
    held = [SOURCES[source](memory)]
    del memory
    plan = ferry.plan(held[0], target)
    results = [ferry.to(held[0], target)]
    return held, results, observe, plan.shares


def settle(observe: weakref.ref) -> None:
    """Waits for releases by other threads or by the garbage collector.

    A thread of a framework needs the GIL for them, so it is offered between collections.
    """
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while observe() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)


def shows(target: str, x: Any) -> bool:
    """Whether the values are still there, after other things were put where they would have
    been."""
    kept = churn(VALUES.nbytes)
    return INSPECTORS[target].values(x) == VALUES.tobytes() and bool(kept)


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", SOURCES)
class TestShare:
    def test_the_source_dies_first(self, source: str, target: str) -> None:
        held, results, observe, shares = carried(source, target)
        held.clear()
        if shares:
            assert observe() is not None, "the memory went with the source"
        else:
            settle(observe)
            assert observe() is None, "a copy holds the source"
        assert shows(target, results[0])
        results.clear()
        settle(observe)
        assert observe() is None, "the memory is held for ever"

    def test_the_result_dies_first(self, source: str, target: str) -> None:
        held, results, observe, _ = carried(source, target)
        results.clear()
        assert observe() is not None, "the memory went with the result"
        held.clear()
        settle(observe)
        assert observe() is None, "the memory is held for ever"

    def test_the_last_one_dies_on_another_thread(self, source: str, target: str) -> None:
        held, results, observe, shares = carried(source, target)
        held.clear()
        assert (observe() is not None) or not shares
        thread = threading.Thread(target=results.clear)
        thread.start()
        thread.join()
        settle(observe)
        assert observe() is None, "the memory is held for ever"

    def test_carried_on_another_thread(self, source: str, target: str) -> None:
        observe, memory = counted()
        held = [SOURCES[source](memory)]
        del memory
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(ferry.to(held[0], target)))
        thread.start()
        thread.join()
        held.clear()
        assert shows(target, results[0])
        results.clear()
        settle(observe)
        assert observe() is None, "the memory is held for ever"

    def test_many_results_of_one_source(
        self, source: str, target: str, request: pytest.FixtureRequest
    ) -> None:
        if target == "paddle" and source != "paddle":
            reason = "Paddle forgets one of two deleters for the same address (its from_dlpack too)"
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
        held, results, observe, shares = carried(source, target)
        results.extend(ferry.to(held[0], target) for _ in range(4))
        held.clear()
        while results:
            assert observe() is not None or not shares
            assert INSPECTORS[target].values(results.pop(0)) == VALUES.tobytes()
        settle(observe)
        assert observe() is None, "the memory is held for ever"


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_mlx_memory_outlives_its_array(target: str) -> None:
    """MLX's own memory cannot be watched; that it is not reused under a share can."""
    results = [ferry.to(mx.array(VALUES), target)]
    kept = [mx.full((12,), 7.0) for _ in range(64)]
    mx.eval(kept)
    assert shows(target, results[0])


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_buffers_are_held_and_released(kind: type, target: str) -> None:
    x = kind(range(200))
    baseline = sys.getrefcount(x)
    shares = ferry.plan(x, target).shares
    assert sys.getrefcount(x) == baseline
    result = ferry.to(x, target)
    held = sys.getrefcount(x) - baseline
    assert held == (1 if shares else 0)
    if kind is bytearray and shares:
        with pytest.raises(BufferError):
            x.append(1)
    assert INSPECTORS[target].values(result) == bytes(range(200))
    del result
    gc.collect()
    assert sys.getrefcount(x) == baseline
    if kind is bytearray:
        x.append(1)


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_a_failed_trip_holds_nothing(target: str) -> None:
    observe, memory = counted()
    strided = memory[::-2]
    del memory
    with pytest.raises(ferry.FerryError):
        ferry.to(strided, target, copy=False, dtype="float64")
    with pytest.raises(ferry.FerryError):
        ferry.to(
            strided,
            target,
            writable=target not in ("numpy", "torch", "paddle"),
            dtype="int4",
            copy=False,
        )
    del strided
    settle(observe)
    assert observe() is None


@pytest.mark.parametrize("target", [name for name in FRAMEWORKS if name != "torch"])
@pytest.mark.parametrize("how", ["data", "set_", "storage resized after"])
def test_torch_data_is_replaced_under_a_share(target: str, how: str) -> None:
    """What keeps torch's memory alive is its storage: a tensor may be pointed elsewhere."""
    t = torch.arange(12, dtype=torch.float32)
    result = ferry.to(t, target)
    if how == "data":
        t.data = torch.full((12,), -1.0)
    elif how == "set_":
        t.set_(torch.full((12,), -1.0))
    else:
        t = t[:1].clone()
    kept = [torch.full((12,), 7.0) for _ in range(64)]
    assert shows(target, result)
    assert kept
