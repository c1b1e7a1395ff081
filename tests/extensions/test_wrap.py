"""`wrap` of the C table: memory of an extension as a tensor of every framework."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import paddle
import pytest
import torch
from matrix.check import Failures
from support import subprocesses
from support.c_table import api, take
from support.dtypes import ALL, FLOAT32, sample, significant
from support.introspect import FRAMEWORKS, INSPECTORS, TYPES, has_dtype
from support.invalid_capsules import Producer
from support.memory import aligned

import tensorferry as ferry

import jax.numpy as jnp  # isort: skip
import mlx.core as mx  # isort: skip
import tensorflow as tf  # isort: skip


class Exported:
    """A managed tensor of an extension, which counts the calls of its deleter."""

    def __init__(self, raw: np.ndarray, dtype=FLOAT32, **options) -> None:
        self.raw = raw
        self.producer = Producer(
            shape=options.pop("shape", (raw.nbytes // dtype.size,)),
            dtype=(dtype.code, dtype.bits, 1),
            version=options.pop("version", (1, 3)),
            flags=options.pop("flags", 4 if dtype.is_narrow else 0),
            **options,
        )
        self.producer.managed.tensor.data = raw.ctypes.data

    @property
    def address(self) -> int:
        return ctypes.addressof(self.producer.managed)

    @property
    def deleted(self) -> int:
        return self.producer.deleted


EXAMPLES = {
    "numpy": lambda: np.ones(2),
    "torch": lambda: torch.ones(2),
    "jax": lambda: jnp.ones(2),
    "tensorflow": lambda: tf.constant([1.0]),
    "paddle": lambda: paddle.ones([2]),
    "mlx": lambda: mx.ones(2),
}


@pytest.mark.parametrize("by", ["name", "tensor"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_type_reaches_every_framework(framework: str, by: str) -> None:
    failures = Failures()
    like = framework if by == "name" else EXAMPLES[framework]()
    for dtype in ALL:
        if not has_dtype(framework, dtype):
            continue
        with failures.observe(dtype):
            raw = aligned(12 * dtype.size)
            raw[:] = sample(dtype, 12)
            exported = Exported(raw, dtype, shape=(3, 4))
            if framework == "jax" and dtype.is_64_bit:
                with pytest.raises(ferry.UnsupportedDTypeError):
                    api.wrap(exported.address, like)
                assert exported.deleted == 0
                continue
            result = api.wrap(exported.address, like)
            look = INSPECTORS[framework]
            assert isinstance(result, TYPES[framework])
            assert (look.dtype(result), look.shape(result)) == (dtype.name, (3, 4))
            values = significant(dtype, look.values(result))
            assert values == significant(dtype, raw.tobytes())
            if framework in ("numpy", "torch"):
                assert look.address(result) == raw.ctypes.data
                assert exported.deleted == 0
            del result
            gc.collect()
            ferry.to(np.ones(1), "torch")  # drops what was deferred
            assert exported.deleted == 1
    failures.report()


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_unaligned_memory_is_copied_and_released_at_once(framework: str) -> None:
    raw = aligned(48, past=4)
    raw[:] = sample(FLOAT32, 12)
    exported = Exported(raw)
    result = api.wrap(exported.address, framework)
    assert exported.deleted == 1
    assert INSPECTORS[framework].values(result) == raw.tobytes()


@pytest.mark.parametrize("like", [memoryview(b"ab"), bytearray(2), b"ab", Producer()])
def test_an_object_without_a_framework_gives_an_array(like: object) -> None:
    exported = Exported(sample(FLOAT32, 3))
    result = api.wrap(exported.address, like)
    assert type(result) is np.ndarray
    assert result.flags.writeable


def test_a_module_names_its_framework() -> None:
    assert isinstance(api.wrap(Exported(sample(FLOAT32, 3)).address, torch), torch.Tensor)


def test_read_only_memory_stays_read_only() -> None:
    result = api.wrap(Exported(sample(FLOAT32, 3), flags=1).address, "numpy")
    assert not result.flags.writeable
    exported = Exported(sample(FLOAT32, 3), flags=1)
    copied = api.wrap(exported.address, "torch")
    assert exported.deleted == 1
    assert copied.data_ptr() != exported.raw.ctypes.data


FAILURES = {
    "no framework": ({}, "nothing", ferry.InvalidArgumentError),
    "a number": ({}, 3, ferry.NotATensorError),
    "a list": ({}, [np.ones(1)], ferry.NotATensorError),
    "another version": ({"version": (2, 0)}, "numpy", ferry.InvalidTensorError),
    "a negative length": ({"shape": (-1,)}, "numpy", ferry.InvalidTensorError),
    "an unknown device": ({"device": (99, 0)}, "numpy", ferry.InvalidTensorError),
    "no memory": ({"shape": (2**50,), "strides": (0,)}, "tensorflow", ferry.OutOfMemoryError),
    "too many dimensions": ({"shape": (1,) * 65}, "numpy", ferry.UnsupportedError),
}


@pytest.mark.parametrize("name", FAILURES)
def test_the_extension_keeps_its_tensor_after_an_error(name: str) -> None:
    options, like, error = FAILURES[name]
    exported = Exported(sample(FLOAT32, 3), **options)
    with pytest.raises(error) as caught:
        api.wrap(exported.address, like)
    assert caught.value.hint
    del caught
    gc.collect()
    ferry.to(np.ones(1), "torch")
    assert exported.deleted == 0


def test_a_missing_tensor_is_refused() -> None:
    with pytest.raises(ferry.InvalidTensorError, match="NULL"):
        api.wrap(None, "numpy")


def test_a_framework_that_fails_leaves_the_tensor_to_the_extension() -> None:
    subprocesses.run_program("extensions/failing_framework.py")


def test_what_was_taken_can_be_wrapped() -> None:
    """The values go from one framework to another without a copy, and the source lives on."""
    source = torch.arange(4.0)
    taken = take(source)
    array = api.wrap(taken.address, "numpy")
    taken.give_up()
    source.add_(1)
    assert array.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
@pytest.mark.parametrize("flags", [0, 1])
def test_memory_of_another_tensor_is_copied_where_to_would_copy_it(
    framework: str, flags: int
) -> None:
    """A share would change with the array, and depend on the address that malloc returned."""
    source = aligned(48).view("f4")
    source[:] = 1
    taken = take(source)
    taken.managed.flags |= flags
    result = api.wrap(taken.address, framework)
    taken.give_up()
    source[:] = 2
    assert INSPECTORS[framework].values(result) == np.ones(12, "f4").tobytes()


def test_the_deleter_may_run_on_another_thread() -> None:
    exported = Exported(sample(FLOAT32, 3))
    kept = [api.wrap(exported.address, "torch")]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert exported.deleted == 1


def test_wraps_are_traced() -> None:
    with ferry.trace() as trips:
        api.wrap(Exported(aligned(12).view("f4")).address, "jax")
    assert [trip.plan.target for trip in trips] == ["jax"]
