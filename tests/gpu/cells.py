"""The cells of the matrix in GPU memory: who can make what there, and how."""

from __future__ import annotations

from typing import Any

import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from matrix import cells
from matrix.cells import CASES, Cell, Form, Maker, form_of
from matrix.expect import SourceProperties
from matrix.make_tensors import make_torch, torch_of, values_of
from support.dtypes import ALL, DType, sample
from support.introspect import JaxInspector, TensorFlowInspector, cupy, jax, tf


def cannot_make(source: str, case: str, dtype: DType) -> str | None:
    """Why a framework cannot make a case with a dtype on a GPU; None where it can."""
    if why := cells.cannot_make(source, case, dtype):
        return why
    if source == "torch" and case.startswith("unaligned"):
        return "torch's memory begins where torch's allocator says"
    if case == "negative bit" and dtype.name == "float16":
        return "torch's own negation there gives NaNs other bits"
    if source in ("jax", "tensorflow") and not (dtype.is_numpys_own or dtype.name == "bfloat16"):
        return "made by DLPack from torch, which these do not take"
    return None


def _make_torch(dtype: DType, case: str) -> Cell:
    return make_torch(dtype, case, "cuda")


def _make_cupy(dtype: DType, case: str) -> Cell:
    form = form_of(case)
    values = values_of(dtype, form)
    room = cupy.zeros(form.room * dtype.size + 64, cupy.uint8)
    assert room.data.ptr % 64 == 0
    room[form.past : form.past + form.room * dtype.size] = cupy.asarray(sample(dtype, form.room))
    strides = tuple(step * dtype.size for step in form.strides)
    start = room.data + form.past + form.start * dtype.size
    x = cupy.ndarray(form.shape, dtype.numpy, start, strides)
    if case == "base dies":
        x, values = x[1:], values[4 * dtype.size :]
    return Cell(
        x, SourceProperties("cupy", dtype, x.shape, x.strides, x.data.ptr, device="cuda"), values
    )


def _torch_source(dtype: DType, case: str) -> tuple[torch.Tensor, bytes]:
    """Memory of torch's, for the frameworks that take it by DLPack."""
    form: Form = form_of(case)
    return torch_of(dtype, form, "cuda"), values_of(dtype, form)


def _make_jax(dtype: DType, case: str) -> Cell:
    t, values = _torch_source(dtype, case)
    j = jax.dlpack.from_dlpack(t)
    if case != "base dies" and case != "transposed":
        # Memory of JAX's own.
        j = jax.numpy.copy(j)
    j.block_until_ready()
    assert j.dtype == dtype.numpy
    strides, address = JaxInspector.strides(j), j.unsafe_buffer_pointer()
    assert strides is not None
    facts = SourceProperties("jax", dtype, j.shape, strides, address, immutable=True, device="cuda")
    return Cell(j, facts, values)


def _make_tensorflow(dtype: DType, case: str) -> Cell:
    t, values = _torch_source(dtype, case)
    strides = tuple(step * dtype.size for step in t.contiguous().stride())
    y: Any = tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t))
    more: dict[str, bool] = {"immutable": True, "reused": y.shape.rank == 0}
    if case == "variable":
        with tf.device("GPU:0"):
            y = tf.Variable(y)
        more = {"frozen": True, "snapshot": True}
    value = y.value() if case == "variable" else y
    # A variable of some types lives in host memory.
    device = "cuda" if "GPU" in value.backing_device else "cpu"
    address = TensorFlowInspector.address(value)
    facts = SourceProperties(
        "tensorflow", dtype, tuple(y.shape), strides, address, device=device, **more
    )
    return Cell(y, facts, values)


_MAKERS: dict[str, Maker] = {
    "torch": _make_torch,
    "cupy": _make_cupy,
    "jax": _make_jax,
    "tensorflow": _make_tensorflow,
}
SOURCES = tuple(name for name in _MAKERS if name in GPU_FRAMEWORKS)


def make(source: str, case: str, dtype: DType) -> Cell:
    """A fresh cell."""
    return _MAKERS[source](dtype, case)


def dtypes_of(source: str, case: str) -> list[DType]:
    """The types in which a source makes a case."""
    return [dtype for dtype in ALL if not cannot_make(source, case, dtype)]


def pairs_of_source_and_case() -> list[tuple[str, str]]:
    """All that some type can be made in."""
    return [(source, case) for source in SOURCES for case in CASES if dtypes_of(source, case)]
