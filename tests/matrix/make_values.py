"""Tensors of the frameworks whose tensors are values: JAX, TensorFlow and MLX."""

from __future__ import annotations

import numpy as np

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import tensorflow as tf  # isort: skip

from matrix.cells import Cell, arrange, fill, form_of
from matrix.expect import SourceProperties
from matrix.make_tensors import values_of
from support.capsules import LegacyProducer
from support.dtypes import DType, sample
from support.introspect import (
    JaxInspector,
    MlxInspector,
    NumpyInspector,
    TensorFlowInspector,
    mx,
    x64,
)


def _dense(dtype: DType, case: str) -> np.ndarray:
    form = form_of(case)
    return arrange(dtype, fill(dtype, form), form)


def make_jax(dtype: DType, case: str) -> Cell:
    """A JAX array, 64-bit ones included: who has them made them while x64 was on."""
    a = _dense(dtype, case)
    with x64(True):
        if case in ("transposed", "base dies"):
            strides = tuple(step // dtype.size for step in a.strides)
            j = jax.dlpack.from_dlpack(
                LegacyProducer(dtype, a.ctypes.data, a.shape, strides, a, versioned=False)
            )
            assert j.unsafe_buffer_pointer() == a.ctypes.data
        else:
            j = jnp.asarray(a)
        j.block_until_ready()
        strides = a.strides if dtype.is_narrow else JaxInspector.strides(j) or a.strides
        address = j.unsafe_buffer_pointer()
    assert j.dtype == dtype.numpy
    facts = SourceProperties(
        "jax", dtype, j.shape, strides, address, immutable=True, pending=dtype.is_narrow
    )
    return Cell(j, facts, NumpyInspector.values(a))


def make_tensorflow(dtype: DType, case: str) -> Cell:
    """An eager TensorFlow tensor."""
    a = _dense(dtype, case)
    values = NumpyInspector.values(a)
    if case == "base dies":
        strides = tuple(step // dtype.size for step in a.strides)
        producer = LegacyProducer(dtype, a.ctypes.data, a.shape, strides, a, versioned=False)
        t = tf.experimental.dlpack.from_dlpack(producer.__dlpack__())
        assert TensorFlowInspector.address(t) == a.ctypes.data
    else:
        t = tf.constant(a)
    shape = tuple(t.shape)
    if case == "variable":
        v = tf.Variable(t)
        facts = SourceProperties(
            "tensorflow",
            dtype,
            shape,
            a.strides,
            TensorFlowInspector.address(v.value()),
            frozen=True,
            snapshot=True,
        )
        return Cell(v, facts, values)
    facts = SourceProperties(
        "tensorflow",
        dtype,
        shape,
        a.strides,
        TensorFlowInspector.address(t),
        immutable=True,
        reused=shape == (),
    )
    return Cell(t, facts, values)


def make_mlx(dtype: DType, case: str) -> Cell:
    """An MLX array."""
    form = form_of(case)
    raw = sample(dtype, form.room)
    if dtype.name == "bfloat16":
        whole = mx.array(raw.view(np.uint16)).view(mx.bfloat16)
    else:
        own = mx.bool_ if dtype.name == "bool" else getattr(mx, dtype.name)
        whole = mx.array(raw.view(dtype.numpy), dtype=own)
    if case == "negative step":
        m = whole.reshape(3, 4)[::-1, ::-1]
    elif case == "empty":
        m = whole.reshape(form.shape)
    else:
        m = mx.as_strided(whole, form.shape, form.strides, form.start)
    values = values_of(dtype, form)
    if case == "base dies":
        m, values = m[1:], values[4 * dtype.size :]
    mx.eval(m)
    facts = SourceProperties(
        "mlx",
        dtype,
        tuple(m.shape),
        MlxInspector.strides(m),
        MlxInspector.address(m),
        immutable=True,
    )
    return Cell(m, facts, values)


MAKERS = {"jax": make_jax, "tensorflow": make_tensorflow, "mlx": make_mlx}
