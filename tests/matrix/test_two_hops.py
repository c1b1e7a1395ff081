"""Frozen memory does not come back writable through a third framework."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from matrix.check import Failures
from matrix.expect import TARGETS
from support.dtypes import FLOAT32, NAMED, sample, significant
from support.introspect import INSPECTORS, values_now
from support.memory import aligned, read_only_map

import tensorferry as ferry

import tensorflow as tf  # isort: skip


def _read_only_array(raw: np.ndarray) -> Any:
    a = aligned(raw.size // 4, np.float32)
    a[:] = raw.view(np.float32)
    # NumPy takes the array that allocated the memory as the base of every view.
    a.base.flags.writeable = False
    a.flags.writeable = False
    return a


def _read_only_view(raw: np.ndarray) -> Any:
    return _read_only_array(raw)[:]


def _map(raw: np.ndarray) -> Any:
    return read_only_map(raw)


def _memmap(raw: np.ndarray) -> Any:
    return np.frombuffer(read_only_map(raw), np.float32)


def _aligned_bytes(raw: np.ndarray) -> Any:
    """A part of a bytes object that begins at a 64-byte boundary."""
    assert raw.size == 64
    # Python aligns bytes to 16: of four places, each 16 further past a multiple of 64, one is at a
    # boundary.
    room = b"".join(raw.tobytes() + bytes(16) for _ in range(4))
    address = np.frombuffer(room, np.uint8).ctypes.data
    starts = [start for start in range(0, len(room), 80) if (address + start) % 64 == 0]
    return memoryview(room)[starts[0] : starts[0] + 64]


def _not_a_leaf(raw: np.ndarray) -> Any:
    t = torch.from_numpy(raw.view(np.float32).copy()).requires_grad_().clone()
    assert not t.is_leaf
    return t


def _not_a_leaf_paddle(raw: np.ndarray) -> Any:
    p = paddle.to_tensor(raw.view(np.float32).copy(), stop_gradient=False).clone()
    assert not p.is_leaf
    return p


def _variable(raw: np.ndarray) -> Any:
    return tf.Variable(raw.view(np.float32).copy())


READ_ONLY: dict[str, Callable[[np.ndarray], Any]] = {
    "read-only array": _read_only_array,
    "read-only view of a read-only array": _read_only_view,
    "bytes": lambda raw: raw.tobytes(),
    "bytes at a boundary": _aligned_bytes,
    "read-only map": _map,
    "array over a read-only map": _memmap,
    "torch, not a leaf": _not_a_leaf,
    "paddle, not a leaf": _not_a_leaf_paddle,
    "variable": _variable,
}
FIRST = ("jax", "tensorflow", "numpy")
SECOND = ("torch", "paddle", "numpy", "mlx", "jax", "tensorflow")


def raw_floats() -> np.ndarray:
    """Bytes that are floats and integers alike."""
    return sample(FLOAT32, 16)


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("frozen", READ_ONLY)
def test_frozen_memory_stays_frozen(frozen: str, first: str, second: str) -> None:
    raw = raw_floats()
    source = READ_ONLY[frozen](raw)
    middle = ferry.to(source, first)
    assert INSPECTORS[first].values(middle) == raw.tobytes()
    at = INSPECTORS[first].address(middle)
    shared = ferry.plan(source, first).shares
    if frozen == "variable" and first == "tensorflow":
        # What TensorFlow itself gives as the value is a tensor like any other: immutable, and
        # shared as such.
        assert shared
        return
    plan = ferry.plan(middle, second)
    result = ferry.to(middle, second)
    assert INSPECTORS[second].values(result) == raw.tobytes()
    aliased = INSPECTORS[second].address(result) == at
    if TARGETS[second].users == "write" and (shared or first == "numpy"):
        assert plan.action == "copy"
        assert not aliased, "frozen memory came back writable"
    if second == "numpy" and aliased:
        assert not result.flags.writeable
    if second == "mlx":
        assert not aliased
    if TARGETS[second].users == "write":
        # Writing for certain: into a read-only map this would end the process.
        result[0] = result[1].clone()
        assert INSPECTORS[second].values(result) != raw.tobytes()
    elif second == "mlx":
        result[0] = result[1]
    if shared:
        assert values_now(first, middle) == raw.tobytes(), "the write went through to frozen memory"


def _fill(framework: str, x: Any, value: float) -> None:
    if framework == "numpy":
        x[...] = value
    else:
        x.detach().fill_(value)


@pytest.mark.parametrize("last", ["numpy", "torch", "paddle"])
@pytest.mark.parametrize("middle", [[], ["numpy"], ["paddle"], ["torch", "numpy"]], ids=str)
@pytest.mark.parametrize("first", ["torch", "paddle"])
@pytest.mark.parametrize("source", ["jax", "tensorflow"])
def test_a_writable_result_does_not_write_an_immutable_tensor(
    source: str, first: str, middle: list[str], last: str
) -> None:
    """Frameworks of writable tensors share an immutable one, and do not know that it is."""
    raw = raw_floats()
    immutable = ferry.to(raw.view(np.float32), source, copy=True)
    shares = [ferry.to(immutable, first)]
    for framework in middle:
        shares.append(ferry.to(shares[-1], framework))
    address = INSPECTORS[source].address(immutable)
    assert INSPECTORS[[first, *middle][-1]].address(shares[-1]) == address
    part = shares[-1][4:8]
    for x in (shares[-1], part):
        plan = ferry.plan(x, last, writable=True)
        result = ferry.to(x, last, writable=True)
        assert (plan.action, plan.writable) == ("copy", True)
        assert "immutable" in str(plan)
        _fill(last, result, 7.0)
        with pytest.raises(ferry.CopyRequiredError):
            ferry.to(x, last, writable=True, copy=False)
    holder = [first, *middle][-1]
    with pytest.raises(ferry.InvalidArgumentError, match="memory of an immutable tensor"):
        ferry.to(np.zeros(16, np.float32), holder, out=shares[-1])
    assert INSPECTORS[source].values(immutable) == raw.tobytes()
    # Without the option the share stays one, and the record ends with the last share.
    assert ferry.plan(shares[-1], "torch").bytes_moved == 0
    del shares, part, x, result, plan
    gc.collect()
    own = ferry.to(ferry.to(immutable, first, copy=True), "numpy", writable=True)
    own[...] = 1


@pytest.mark.parametrize("first", ["jax", "tensorflow"])
def test_a_writable_result_does_not_write_read_only_memory(first: str) -> None:
    """PyTorch imports a share of read-only memory as writable; a write would end the process."""
    memory = _memmap(raw_floats())
    middle = ferry.to(memory, first)
    assert INSPECTORS[first].address(middle) == memory.ctypes.data
    module = {"jax": lambda x: x, "tensorflow": tf.experimental.dlpack.to_dlpack}[first]
    behind = torch.from_dlpack(module(middle))
    assert behind.data_ptr() == memory.ctypes.data
    for framework in ("torch", "numpy"):
        result = ferry.to(behind, framework, writable=True)
        _fill(framework, result, 7.0)
    assert memory.tobytes() == raw_floats().tobytes()


@pytest.mark.parametrize("target", ["numpy", "torch", "paddle"])
@pytest.mark.parametrize("source", ["numpy", "torch", "paddle"])
def test_a_writable_result_shares_with_a_writable_source(source: str, target: str) -> None:
    x = ferry.to(raw_floats().view(np.float32), source, copy=True)
    before = INSPECTORS[source].values(x)
    _fill(target, ferry.to(x, target, writable=True, copy=True), 7.0)
    assert INSPECTORS[source].values(x) == before
    result = ferry.to(x, target, writable=True)
    assert INSPECTORS[target].address(result) == INSPECTORS[source].address(x)
    _fill(target, result, 7.0)
    assert INSPECTORS[source].values(x) != before


@pytest.mark.parametrize("second", ["torch", "paddle"])
@pytest.mark.parametrize("first", ["jax", "tensorflow"])
def test_a_frozen_part_is_enough(first: str, second: str) -> None:
    """A slice of frozen memory is lent; what is beside it is not, and the loan ends with the
    result."""
    memory = ferry.empty_shared(64, "float32")
    memory[:] = 1.0
    part = memory[16:32]
    part.flags.writeable = False
    lent = ferry.to(part, first)
    assert INSPECTORS[first].address(lent) == part.ctypes.data
    beside = ferry.to(memory[:16], first)
    assert ferry.plan(lent, second).action == "copy"
    assert ferry.plan(beside, second).action == "share"
    del lent, part
    gc.collect()
    again = ferry.to(memory[16:32], first)
    assert ferry.plan(again, second).action == "share"


@pytest.mark.parametrize("second", ["torch", "paddle"])
@pytest.mark.parametrize("first", ["jax", "tensorflow"])
def test_three_hops(first: str, second: str) -> None:
    """Frozen memory through two frameworks that take it as immutable."""
    other = {"jax": "tensorflow", "tensorflow": "jax"}[first]
    a = _read_only_array(raw_floats())
    one = ferry.to(a, first)
    two = ferry.to(one, other)
    assert INSPECTORS[other].address(two) == a.ctypes.data
    del one
    gc.collect()
    assert ferry.plan(two, second).action == "copy"
    back = ferry.to(two, "numpy")
    assert not back.flags.writeable
    assert back.ctypes.data == a.ctypes.data


@pytest.mark.parametrize("operation", ["reshape", "slice of rows", "bitcast"])
def test_what_a_framework_makes_of_a_loan(operation: str) -> None:
    """TensorFlow's own views of lent memory are lent too."""
    a = _read_only_array(raw_floats())
    t = ferry.to(a, "tensorflow")
    made = {
        "reshape": lambda: tf.reshape(t, [4, 4]),
        "slice of rows": lambda: tf.reshape(t, [4, 4])[:2],
        "bitcast": lambda: tf.bitcast(t, tf.int32),
    }[operation]()
    result = ferry.to(made, "torch")
    before = a.tobytes()
    result.zero_()
    assert a.tobytes() == before


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
@pytest.mark.parametrize("size", [1, 16, 1_000_000])
def test_a_variable_gives_a_snapshot(size: int, dtype: str) -> None:
    kind = NAMED[dtype]
    raw = sample(kind, size).view(kind.numpy)
    other = np.ones(size, kind.numpy)
    v = tf.Variable(raw)
    results = {
        target: ferry.to(v, target) for target in ("numpy", "torch", "tensorflow", "paddle", "mlx")
    }
    if dtype != "int64":
        results["jax"] = ferry.to(v, "jax")
    assert not results["numpy"].flags.writeable
    assert ferry.plan(v, "torch").action == "copy"
    assert ferry.plan(v, "numpy").action == "share"
    v.assign(other)
    for target, result in results.items():
        now = significant(kind, INSPECTORS[target].values(result))
        assert now == significant(kind, raw.tobytes()), target
    assert v.numpy().tobytes() == other.tobytes()
    results["torch"].zero_()
    assert v.numpy().tobytes() == other.tobytes()
    assert any("snapshot" in note for note in ferry.plan(v, "numpy").notes)


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "paddle", "mlx"])
def test_tensorflow_scalars_are_copied(target: str) -> None:
    """TensorFlow hands the memory of a constant to the next one: writing it would change both."""
    failures = Failures()
    for value in (1.0, 0.0, 7, True):
        with failures.observe(f"{value}"):
            t = tf.constant(value)
            assert ferry.plan(t, target).action == "copy"
            with pytest.raises(ferry.CopyRequiredError):
                ferry.to(t, target, copy=False)
            result = ferry.to(t, target)
            if target in ("numpy", "torch"):
                result[()] = 42
            elif target == "paddle":
                result.fill_(42)
            assert tf.constant(value).numpy() == value
            assert INSPECTORS[target].dtype(result) == t.dtype.name
    failures.report()
