"""No framework reuses the memory of a shared source for its results.

TensorFlow reuses an input's buffer for an output if it holds the only reference; JAX does so if the
caller donates the input. Both must see that a shared buffer has another owner.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.introspect import INSPECTORS
from support.memory import aligned

import tensorferry as ferry

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import tensorflow as tf  # isort: skip

SIZES = (16, 1_000_000)


def _numpy(size: int) -> np.ndarray:
    a = aligned(size, np.float32)
    a[:] = np.arange(size)
    return a


SOURCES: dict[str, Callable[[int], Any]] = {
    "numpy": _numpy,
    "torch": lambda size: torch.arange(size, dtype=torch.float32),
    "jax": lambda size: jnp.arange(size, dtype=jnp.float32),
    "tensorflow": lambda size: tf.range(size, dtype=tf.float32),
}


def plus_one(x: Any) -> Any:
    return x + 1.0


def chain(x: Any) -> Any:
    """Operations that could all use one buffer."""
    return tf.nn.relu(tf.square(-(x + 1.0)) * 2.0)


def scatter(x: Any) -> Any:
    return tf.tensor_scatter_nd_update(x, [[0]], [99.0])


def _assigned(make: Callable[[Any], Any], change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(share: Any) -> Any:
        v = make(share)
        change(v)
        return v

    return run


def _assign_then(share: Any) -> Any:
    v = tf.Variable(tf.zeros_like(share))
    v.assign(share)
    return v


def _assign_temporary(share: Any) -> Any:
    v = tf.Variable(tf.zeros_like(share))
    v.assign(tf.identity(share))
    return v


VARIABLES = {
    "made from it": tf.Variable,
    "assigned": _assign_then,
    "assigned a temporary": _assign_temporary,
}
CHANGES = {
    "assign_add": lambda v: v.assign_add(tf.ones_like(v)),
    "assign_sub": lambda v: v.assign_sub(tf.ones_like(v)),
    "scatter_nd_update": lambda v: v.scatter_nd_update([[0], [1]], [99.0, 98.0]),
    "scatter_update": lambda v: v.scatter_update(tf.IndexedSlices([5.0], [0])),
    "slice assign": lambda v: v[:4].assign(tf.zeros(4)),
    "assign": lambda v: v.assign(tf.zeros_like(v)),
}

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "eager": plus_one,
    "eager chain": chain,
    "eager scatter": scatter,
    "function": tf.function(chain),
    "function with scatter": tf.function(scatter),
    "compiled function": tf.function(chain, jit_compile=True),
    "compiled scatter": tf.function(scatter, jit_compile=True),
    **{
        f"variable {how}, then {change}": _assigned(make, CHANGES[change])
        for how, make in VARIABLES.items()
        for change in CHANGES
    },
}


def snapshot(source: str, x: Any) -> bytes:
    return INSPECTORS[source].values(x)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("source", [name for name in SOURCES if name != "tensorflow"])
def test_tensorflow_forwards_no_shared_buffer(source: str, operation: str, size: int) -> None:
    x = SOURCES[source](size)
    before = snapshot(source, x)
    share = ferry.to(x, "tensorflow", copy=False)
    made = OPERATIONS[operation](share)
    assert snapshot(source, x) == before
    assert share.numpy().tobytes() == before
    # And as a temporary, which nobody holds but the operation.
    again = OPERATIONS[operation](ferry.to(x, "tensorflow", copy=False))
    assert snapshot(source, x) == before
    assert made.numpy().tobytes() == again.numpy().tobytes()
    assert made.numpy().tobytes() != before


def _donate(compiled: Any, x: Any) -> Any:
    with warnings.catch_warnings():
        # JAX says so where it declines a donation, which is the point.
        warnings.simplefilter("ignore")
        return compiled(x).block_until_ready()


DONATED = {
    "same shape": lambda x: x + 1.0,
    "in place": lambda x: x.at[0].set(99.0),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * 2.0 + 1.0, x),
    "reshaped": lambda x: (x * 3.0 + 1.0).reshape(2, -1),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", DONATED)
@pytest.mark.parametrize("source", [name for name in SOURCES if name != "jax"])
def test_jax_donation_leaves_the_source(source: str, function: str, size: int) -> None:
    compiled = jax.jit(DONATED[function], donate_argnums=0)
    x = SOURCES[source](size)
    before = snapshot(source, x)
    made = _donate(compiled, ferry.to(x, "jax", copy=False))
    assert snapshot(source, x) == before
    assert np.asarray(made).tobytes() != before
    # Moved to the device that it is on, which gives another array over the same memory, and then
    # donated.
    moved = jax.device_put(ferry.to(x, "jax", copy=False), jax.devices("cpu")[0])
    _donate(compiled, moved)
    assert snapshot(source, x) == before


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "paddle", "mlx"])
def test_donating_a_jax_source_leaves_its_shares(target: str, size: int) -> None:
    j = jnp.arange(size, dtype=jnp.float32)
    before = np.asarray(j).tobytes()
    result = ferry.to(j, target)
    _donate(jax.jit(plus_one, donate_argnums=0), j)
    assert INSPECTORS[target].values(result) == before


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "paddle"])
def test_tensorflow_does_not_reuse_what_it_shared(target: str, operation: str, size: int) -> None:
    """The other way round: the source is TensorFlow's, its tensor is dropped, and operations run
    on others."""
    t = tf.range(size, dtype=tf.float32)
    before = t.numpy().tobytes()
    result = ferry.to(t, target)
    made = OPERATIONS[operation](t)
    assert made.numpy().tobytes() != before
    del t
    others = [tf.range(size, dtype=tf.float32) * 3.0 for _ in range(4)]
    assert INSPECTORS[target].values(result) == before
    assert all(other.numpy()[1] == 3.0 for other in others)
