"""Tensors of the frameworks that let their users write: torch and Paddle."""

from __future__ import annotations

import numpy as np
import torch
from matrix.cells import Cell, Form, arrange, form_of
from matrix.expect import SourceProperties
from support.dtypes import DType, sample
from support.introspect import NumpyInspector, PaddleInspector, TorchInspector, paddle, torch_dtype
from support.memory import aligned


def values_of(dtype: DType, form: Form) -> bytes:
    """What a tensor of this form over sample values must show."""
    return NumpyInspector.values(arrange(dtype, sample(dtype, form.room), form))


def torch_of(dtype: DType, form: Form, device: str = "cpu") -> torch.Tensor:
    """A torch tensor over memory of torch's own, or over a block that begins where torch's never
    does."""
    own = torch_dtype(dtype)
    raw = sample(dtype, form.room)
    if form.past:
        memory = aligned(raw.size, past=form.past)
        memory[:] = raw
        flat = torch.frombuffer(memory, dtype=own)
    else:
        flat = torch.empty(form.room, dtype=own)
        flat.view(torch.uint8).copy_(torch.from_numpy(raw))
    return flat.to(device).as_strided(form.shape, form.strides, form.start)


def _torch_properties(dtype: DType, t: torch.Tensor, **more: bool) -> SourceProperties:
    strides, place = TorchInspector.strides(t), t.device.type
    # PyTorch's allocator aligns to 64 bytes; what it did not allocate it does not resize.
    foreign = not t.untyped_storage().resizable()
    return SourceProperties(
        "torch",
        dtype,
        tuple(t.shape),
        strides,
        t.data_ptr(),
        device=place,
        accidental=foreign,
        **more,
    )


def make_torch(dtype: DType, case: str, device: str = "cpu") -> Cell:
    """A torch tensor."""
    form = form_of(case)
    values = values_of(dtype, form)
    t = torch_of(dtype, form, device)
    if case == "requires grad, leaf":
        t.requires_grad_()
        return Cell(t, _torch_properties(dtype, t, grad=True), values)
    if case == "requires grad, not a leaf":
        t = t.requires_grad_().clone()
        assert not t.is_leaf
        return Cell(t, _torch_properties(dtype, t, grad=True, frozen=True), values)
    if case == "conjugate bit":
        t = t.conj()
        assert t.is_conj()
        return Cell(
            t,
            _torch_properties(dtype, t, pending=True),
            _flipped(dtype, values, imaginary_only=True),
        )
    if case == "negative bit":
        return _negated(dtype, t, values)
    if case == "base dies":
        return Cell(t[1:], _torch_properties(dtype, t[1:]), values[4 * dtype.size :])
    return Cell(t, _torch_properties(dtype, t), values)


def _negated(dtype: DType, t: torch.Tensor, values: bytes) -> Cell:
    if dtype.name in ("float32", "float64"):
        # The way that users meet it: the imaginary part of a conjugate.
        whole = torch.complex(torch.zeros_like(t), t)
        negated = whole.conj().imag
    else:
        negated = torch._neg_view(t)
    assert negated.is_neg()
    if dtype.kind in ("float", "complex"):
        expected = _flipped(dtype, values, imaginary_only=False)
    else:
        expected = (-np.frombuffer(values, dtype.numpy)).tobytes()
    return Cell(negated, _torch_properties(dtype, negated, pending=True), expected)


def _flipped(dtype: DType, values: bytes, *, imaginary_only: bool) -> bytes:
    """The values with the sign bits of all parts, or of the imaginary ones, turned over."""
    unit = dtype.swap_unit
    words = np.frombuffer(values, f"u{unit}").copy()
    words[1 if imaginary_only else 0 :: 2 if imaginary_only else 1] ^= np.array(
        1 << (8 * unit - 1), words.dtype
    )
    return words.tobytes()


def paddle_of(t: torch.Tensor) -> paddle.Tensor:
    """A Paddle tensor over the memory of a torch tensor, through their own DLPack functions."""
    return paddle.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t))


def make_paddle(dtype: DType, case: str) -> Cell:
    """A Paddle tensor."""
    form = form_of(case)
    values = values_of(dtype, form)
    t = torch_of(dtype, form)
    if case == "base dies":
        t, values = t[1:], values[4 * dtype.size :]
    p = paddle_of(t)
    del t
    if case == "dense" and dtype.name not in ("uint32", "uint64"):
        # Memory of Paddle's own, where it can copy: it has no kernel for these two.
        p = p.clone()
    frozen = False
    if case.startswith("requires grad"):
        p.stop_gradient = False
    if case == "requires grad, not a leaf":
        p = p.clone()
        assert not p.is_leaf
        frozen = True
    grad = case.startswith("requires grad")
    strides = PaddleInspector.strides(p)
    return Cell(
        p,
        SourceProperties(
            "paddle",
            dtype,
            tuple(p.shape),
            strides,
            p.data_ptr(),
            frozen=frozen,
            grad=grad,
            accidental=True,
        ),
        values,
    )


MAKERS = {"torch": make_torch, "paddle": make_paddle}
