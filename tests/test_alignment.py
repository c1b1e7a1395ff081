"""Whether memory is shared does not depend on where an allocator happened to put it."""

from __future__ import annotations

import array
import gc
import io
import mmap
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

import jax
import ml_dtypes
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
import torch
from support.introspect import INSPECTORS, paddle, x64
from support.memory import aligned

import tensorferry as ferry

TARGETS = ("jax", "tensorflow")
COUNT = 60
"""Tensors of each kind. malloc puts a quarter of them at multiples of 64."""

Source = tuple[Any, Callable[[], None]]
"""A tensor of ones, and a function that writes twos into its memory."""


def of_array(a: np.ndarray) -> Source:
    a[...] = 1

    def write() -> None:
        a[...] = 2

    return a, write


def over(make: Callable[[np.ndarray], Any]) -> Callable[[int], Source]:
    """Something that `make` puts over an ordinary array, which is written behind its back."""

    def source(size: int) -> Source:
        a, write = of_array(np.empty(size, np.uint8))
        return make(a), write

    return source


def bytes_like(make: Callable[[bytes], Any]) -> Callable[[int], Source]:
    def source(size: int) -> Source:
        made = make(bytes([1]) * size)

        def write() -> None:
            memoryview(made).cast("B")[:] = bytes([2]) * size

        return made, write

    return source


def of_torch(t: torch.Tensor) -> Source:
    t.fill_(1)
    return t, lambda: t.fill_(2)


def of_seen(t: torch.Tensor) -> Source:
    t.numpy()
    return of_torch(t)


def reloaded(t: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    return torch.load(file)


def of_paddle(size: int) -> Source:
    t = paddle.to_tensor(np.ones(size, np.float32))
    view = torch.from_dlpack(paddle.utils.dlpack.to_dlpack(t))

    def write() -> None:
        view.fill_(2)

    return t, write


def read_only_view(a: np.ndarray) -> np.ndarray:
    view = a[:]
    view.flags.writeable = False
    return view


def read_only_memoryview(made: bytearray) -> memoryview:
    return memoryview(made).toreadonly()


class Producer:
    def __init__(self, a: np.ndarray) -> None:
        self._array = a

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Interface:
    """An array that others write, offered as read-only."""

    def __init__(self, a: np.ndarray) -> None:
        self._array = a
        offered = dict(a.__array_interface__)
        self.__array_interface__ = {**offered, "data": (offered["data"][0], True)}


def through_base(view: np.ndarray) -> Source:
    base = view.base
    assert base is not None
    base[...] = 1

    def write() -> None:
        view.base[...] = 2  # type: ignore[index]

    return view, write


def read_only_of_memoryview(size: int) -> Source:
    writable = memoryview(bytearray(bytes([1]) * size))

    def write() -> None:
        writable[:] = bytes([2]) * size

    return writable.toreadonly(), write


def read_only_bytearray(size: int) -> Source:
    made = bytearray(bytes([1]) * size)

    def write() -> None:
        made[:] = bytes([2]) * size

    return read_only_memoryview(made), write


def mapped(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size)


def named_memory(size: int) -> Source:
    memory = shared_memory.SharedMemory(create=True, size=size)
    memory.unlink()
    a, write = of_array(np.ndarray((size,), np.uint8, memory.buf))

    def write_and_keep() -> None:
        # NumPy does not keep the map from being closed.
        assert memory.buf is not None
        write()

    return a, write_and_keep


COPIED: dict[str, Callable[[int], Source]] = {
    "numpy": lambda size: of_array(np.empty(size, np.uint8)),
    "numpy float64": lambda size: of_array(np.empty(size // 8, np.float64)),
    "numpy bfloat16": lambda size: of_array(np.empty(size // 2, ml_dtypes.bfloat16)),
    "numpy view": lambda size: of_array(np.empty((2, size), np.uint8)[1]),
    "numpy reshaped": lambda size: of_array(np.empty(size, np.uint8).reshape(-1, 4)),
    "numpy over a bytearray": lambda size: of_array(np.frombuffer(bytearray(size), np.uint8)),
    "read-only view of an array that others write": over(read_only_view),
    "read-only memoryview of a bytearray that others write": read_only_bytearray,
    "read-only view of an array that nobody else holds": lambda size: through_base(
        read_only_view(np.empty(size, np.uint8))
    ),
    "read-only memoryview of a writable memoryview": read_only_of_memoryview,
    "numpy over a read-only memoryview": over(
        lambda a: np.frombuffer(memoryview(a).toreadonly(), np.uint8)
    ),
    "as_strided, read-only": over(
        lambda a: np.lib.stride_tricks.as_strided(a, a.shape, a.strides, writeable=False)
    ),
    "read-only __array_interface__": over(Interface),
    "pyarrow over NumPy": over(pa.array),
    "numpy over pyarrow over NumPy": over(lambda a: np.asarray(pa.array(a))),
    "polars over NumPy": over(pl.Series),
    "memoryview": over(memoryview),
    "bytearray": bytes_like(bytearray),
    "array.array": bytes_like(lambda values: array.array("B", values)),
    "__dlpack__": over(Producer),
    "torch over NumPy": over(torch.from_numpy),
    "torch over NumPy, through ferry": over(lambda a: ferry.to(a, "torch")),
    "torch over a bytearray": lambda size: of_torch(
        torch.frombuffer(bytearray(size), dtype=torch.uint8)
    ),
    "numpy over torch over NumPy": over(lambda a: torch.from_numpy(a).numpy()),
    "paddle": of_paddle,
    "paddle over NumPy": over(lambda a: ferry.to(a, "paddle")),
}

SHARED: dict[str, Callable[[int], Source]] = {
    "torch": lambda size: of_torch(torch.empty(size, dtype=torch.uint8)),
    "torch view": lambda size: of_torch(torch.empty((2, size), dtype=torch.uint8)[1]),
    "torch that was seen as NumPy": lambda size: of_seen(torch.empty(size, dtype=torch.uint8)),
    "torch.load": lambda size: of_torch(reloaded(torch.empty(size, dtype=torch.uint8))),
    "torch in shared memory": lambda size: of_torch(
        torch.empty(size, dtype=torch.uint8).share_memory_()
    ),
    "numpy over torch": lambda size: of_array(torch.empty(size, dtype=torch.uint8).numpy()),
    "numpy over torch, through ferry": lambda size: of_array(
        ferry.to(torch.empty(size, dtype=torch.uint8), "numpy")
    ),
    "ferry.empty_shared": lambda size: of_array(ferry.empty_shared(size, "uint8")),
    "ferry.empty_shared in torch": lambda size: of_torch(
        ferry.empty_shared(size, "uint8", framework="torch")
    ),
    "ferry.empty_shared, in torch": lambda size: of_torch(
        ferry.to(ferry.empty_shared(size, "uint8"), "torch")
    ),
    "ferry.empty_aligned": lambda size: of_array(ferry.empty_aligned(size, "uint8")),
    "a copy of ours": lambda size: of_array(ferry.to(np.empty(size, np.uint8), "numpy", copy=True)),
    "a copy of ours in torch": lambda size: of_torch(
        ferry.to(np.empty(size, np.uint8), "torch", copy=True)
    ),
    "a view of a copy of ours in torch": lambda size: of_torch(
        ferry.to(np.empty((2, size), np.uint8), "torch", copy=True)[1]
    ),
    "a copy of ours in torch, in NumPy": lambda size: of_array(
        ferry.to(np.empty(size, np.uint8), "torch", copy=True).numpy()
    ),
    "mmap": lambda size: of_map(mapped(size)),
    "numpy over mmap": lambda size: of_array(np.frombuffer(mapped(size), np.uint8)),
    "shared_memory": named_memory,
}


def of_map(made: mmap.mmap) -> Source:
    size = len(made)
    made[:] = bytes([1]) * size

    def write() -> None:
        made[:] = bytes([2]) * size

    return made, write


def first(x: Any) -> float:
    return float(np.asarray(x, dtype=np.float32).reshape(-1)[0])


def aliases(result: Any, write: Callable[[], None]) -> bool:
    """Whether a write to the source changes the result."""
    assert first(result) == 1
    write()
    return first(result) == 2


def ready(result: Any) -> Any:
    return jax.block_until_ready(result) if isinstance(result, jax.Array) else result


@pytest.fixture(autouse=True)
def x64_enabled():
    with x64(True):
        yield


@pytest.mark.parametrize("size", [64, 4096, 256 << 10])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", COPIED)
def test_memory_that_is_aligned_by_chance_is_always_copied(kind, target, size):
    kept = []
    for _ in range(COUNT if size < 100_000 else 12):
        source, write = COPIED[kind](size)
        plan = ferry.plan(source, target)
        assert (plan.action, plan.shares) == ("copy", False), plan
        with ferry.trace() as trips:
            result = ready(ferry.to(source, target))
        assert str(trips[0].plan.steps) == str(plan.steps)
        plain = ready(ferry.to(source, target))
        assert INSPECTORS[target].address(plain) % 64 == 0
        assert not aliases(plain, write)
        assert first(result) == 1
        kept.append((source, write, plain))


@pytest.mark.parametrize("size", [64, 4096, 256 << 10])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", SHARED)
def test_memory_that_is_aligned_by_construction_is_always_shared(kind, target, size):
    kept = []
    for _ in range(COUNT if size < 100_000 else 12):
        source, write = SHARED[kind](size)
        assert ferry.plan(source, target).action == "share"
        result = ready(ferry.to(source, target))
        assert aliases(result, write)
        kept.append((source, write, result))


@pytest.mark.parametrize("target", TARGETS)
def test_memory_that_is_attached_twice_is_shared_until_both_are_gone(target):
    ticket = ferry.publish(np.ones(1024, np.float32))
    for kept in range(2):
        attached = [ferry.attach(ticket, "torch") for _ in range(2)]
        assert attached[0].data_ptr() == attached[1].data_ptr()
        assert [ferry.plan(t, target).action for t in attached] == ["share", "share"]
        del attached[1 - kept]
        gc.collect()
        assert ferry.plan(attached[0], target).action == "share"


@pytest.mark.parametrize("target", TARGETS)
def test_a_share_can_be_asked_for(target):
    fits, off = aligned(64), aligned(64, past=16)
    fits.fill(1)
    shared = ferry.to(fits, target, copy=False)
    assert aliases(shared, lambda: fits.fill(2))
    assert ferry.plan(fits, target, copy=False).action == "share"
    with pytest.raises(ferry.CopyRequiredError, match="of 64, and this one is 16 bytes past"):
        ferry.to(off, target, copy=False)


@pytest.mark.parametrize("target", TARGETS)
def test_the_plan_is_the_same_wherever_the_array_lies(target):
    plans = [ferry.plan(aligned(64, past=past), target) for past in (0, 1, 16, 32)]
    assert len({str(plan.steps) for plan in plans}) == 1
    [(kind, reason)] = plans[0].steps
    assert kind == "copy"
    assert "64 bytes" in reason
    advice = plans[0].advice
    assert advice is not None
    assert "copy=False" in advice
    assert "ferry.empty_aligned" in advice


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keywords", [{"copy": True}, {"dtype": "float16"}])
def test_chance_is_no_second_reason(target, keywords):
    plans = [ferry.plan(aligned(64, past=past), target, **keywords) for past in (0, 16)]
    assert [len(plan.steps) for plan in plans] == [1, 1]
    assert str(plans[0].steps) == str(plans[1].steps)


@pytest.mark.parametrize("target", TARGETS)
def test_memory_that_nobody_can_write_is_shared_where_it_fits(target):
    """A share of it cannot be told from a copy."""
    a = aligned(64)
    a.base.flags.writeable = False
    a.flags.writeable = False
    assert ferry.plan(a, target).action == "share"
    assert INSPECTORS[target].address(ferry.to(a, target)) == a.ctypes.data


@pytest.mark.parametrize("target", ["torch", "paddle", "numpy"])
def test_targets_that_need_no_alignment_share_as_before(target):
    a = np.ones(64, np.float32)
    expected = "itself" if target == "numpy" else "share"
    assert ferry.plan(a, target).action == expected


@pytest.mark.parametrize("target", TARGETS)
def test_empty_arrays_scalars_and_immutable_sources(target):
    assert first(ferry.to(np.float32(1), target)) == 1
    assert tuple(ferry.to(np.empty((0, 3), np.float32), target).shape) == (0, 3)
    other = tf.ones(16) if target == "jax" else jax.numpy.ones(16, "float32")
    assert ferry.plan(other, target).action == "share"


@pytest.mark.parametrize("target", TARGETS)
def test_trees_and_larger_copies(target):
    a = np.random.default_rng(0).standard_normal((3 << 20,)).astype(np.float32)
    before = a.copy()
    tree = ferry.to({"a": a, "b": [a[: 1 << 10]]}, target)
    a[:] = 0
    assert np.array_equal(np.asarray(tree["a"]), before)
    assert np.array_equal(np.asarray(tree["b"][0]), before[: 1 << 10])


@pytest.mark.parametrize("target", TARGETS)
def test_a_mark_ends_with_the_memory(target):
    """Memory that was a block of ours, and is NumPy's now, is copied like all of NumPy's."""
    kept = []
    for _ in range(200):
        t = ferry.to(np.ones(4096, np.uint8), "torch", copy=True)
        del t
        a = np.ones(4096, np.uint8)
        t = torch.from_numpy(a)
        assert ferry.plan(t, target).action == "copy"
        kept.append(a)
