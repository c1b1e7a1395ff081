"""`out=`: filling a tensor that is there already."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from support.memory import aligned
from support.refusals import TARGETS, refused

import tensorferry as ferry


def source() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
@pytest.mark.parametrize("origin", TARGETS)
def test_out_is_filled(framework, origin):
    x = ferry.to(source(), origin, copy=True)
    out = ferry.to(np.zeros((2, 3), np.float32), framework, copy=True)
    assert ferry.to(x, framework, out=out) is out
    assert ferry.to(out, "numpy").tolist() == source().tolist()


def test_out_may_be_strided():
    big = np.zeros((4, 6), np.float32)
    ferry.to(source(), "numpy", out=big[::2, ::-2])
    want = np.zeros((4, 6), np.float32)
    want[::2, ::-2] = source()
    assert big.tolist() == want.tolist()
    tensor = torch.zeros(3, 2)
    ferry.to(source(), "torch", out=tensor.T)
    assert tensor.tolist() == source().T.tolist()
    unaligned = aligned((2, 3), np.float32, past=1)
    ferry.to(source(), "numpy", out=unaligned)
    assert unaligned.tolist() == source().tolist()


def test_out_casts_when_told_to():
    out = np.zeros((2, 3), np.float16)
    ferry.to(source() + np.float32(0.1), "numpy", out=out, dtype="float16")
    assert out.tolist() == (source() + np.float32(0.1)).astype(np.float16).tolist()
    tensor = torch.zeros(2, 3, dtype=torch.bfloat16)
    ferry.to(source(), "torch", out=tensor, dtype=torch.bfloat16)
    assert tensor.tolist() == source().tolist()


def test_out_may_overlap_the_source():
    for one, other in (
        (np.s_[:-1], np.s_[1:]),
        (np.s_[1:], np.s_[:-1]),
        (np.s_[::-1], np.s_[:]),
        (np.s_[:500], np.s_[250:750]),
    ):
        memory = np.arange(1000, dtype=np.float32)
        want = memory.copy()
        want[other] = memory[one].copy()
        ferry.to(memory[one], "numpy", out=memory[other])
        assert memory.tolist() == want.tolist()
    square = np.arange(10000.0).reshape(100, 100)
    want = square.T.copy()
    ferry.to(square.T, "numpy", out=square)
    assert (square == want).all()
    same = source()
    assert ferry.to(same, "numpy", out=same) is same
    assert same.tolist() == source().tolist()


def test_out_overlaps_through_another_framework_and_type():
    memory = np.arange(64, dtype=np.float32)
    tensor = ferry.to(memory, "torch")
    half = memory.view(np.float16)[:64]
    ferry.to(tensor, "numpy", out=half, dtype="float16")
    assert half.tolist() == np.arange(64).tolist()


def test_out_within_the_budget():
    """Filling takes no memory, unless source and destination overlap."""
    apart = np.zeros((2, 3), np.float32)
    assert ferry.to(source(), "numpy", out=apart, budget=0) is apart
    memory = np.arange(1000, dtype=np.float32)

    def shift(budget):
        return ferry.to(memory[:-1], "numpy", out=memory[1:], budget=budget)

    refused(ferry.OutOfMemoryError, MemoryError, lambda: shift(3995))
    assert memory[1] == 1, "refusing moves nothing"
    assert shift(3996)[0] == 0


def test_out_of_a_source_that_has_to_be_resolved():
    """Resolving takes memory, which the budget counts."""
    source = torch.full((6,), 1 + 2j, dtype=torch.complex64).conj()
    out = np.zeros(6, np.complex64)
    refused(
        ferry.OutOfMemoryError, MemoryError, lambda: ferry.to(source, "numpy", out=out, budget=47)
    )
    assert ferry.to(source, "numpy", out=out, budget=48).tolist() == source.tolist()


def test_out_is_written():
    out = np.zeros((2, 3), np.float32)
    refused(
        ferry.InvalidArgumentError,
        ValueError,
        lambda: ferry.to(source(), "numpy", out=out, writable=False),
    )
    assert ferry.to(source(), "numpy", out=out, writable=True) is out


def test_out_of_empty_and_scalar():
    out = np.zeros((0, 3), np.float32)
    assert ferry.to(np.ones((0, 3), np.float32), "numpy", out=out) is out
    out = np.zeros((), np.float32)
    ferry.to(torch.tensor(7.0), "numpy", out=out)
    assert out == 7


VALUES = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("is_deferred", [False, True])
@pytest.mark.parametrize("alias", ["itself", "detached", "view"])
def test_backward_sees_that_out_has_changed(alias, is_deferred):
    weight = torch.ones(3, requires_grad=True)
    x = torch.tensor([10.0, 20.0, 30.0])
    product = weight * x
    out = {"itself": x, "detached": x.detach(), "view": x[:2]}[alias]
    values = VALUES[:2] if alias == "view" else VALUES
    version = x._version
    if is_deferred:
        job = ferry.to_async(values, "torch", out=out)
        assert x._version == version + 1
        job.result()
    else:
        ferry.to(values, "torch", out=out)
    assert x._version == version + 1
    assert x[:2].tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    assert weight.grad is None


def test_backward_sees_that_a_tensor_of_a_registered_framework_has_changed():
    class Holder:
        def __init__(self, tensor):
            self.tensor = tensor

    ferry.register_framework("holder", types=[Holder], read=lambda x: x.tensor, write=Holder)
    x = torch.zeros(3)
    ferry.to(VALUES, "holder", out=Holder(x))
    assert (x.tolist(), x._version) == ([0, 1, 2], 1)


def test_out_that_is_refused_is_not_counted():
    x = torch.zeros(3)
    for options in ({"copy": False}, {"dtype": "float64"}, {"writable": False}):
        refused(
            ferry.InvalidArgumentError,
            ValueError,
            lambda options=options: ferry.to(VALUES, "torch", out=x, **options),
        )
    assert x._version == 0


def test_out_that_requires_a_gradient():
    """A leaf is written where `copy_` writes it: while gradients are disabled."""
    leaf = torch.nn.Parameter(torch.zeros(3))
    for gate in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        before = leaf._version
        with gate():
            if torch.is_grad_enabled():
                with pytest.raises(RuntimeError, match="leaf"):
                    leaf.copy_(torch.ones(3))
                error = refused(
                    ferry.InvalidArgumentError,
                    ValueError,
                    lambda: ferry.to(VALUES, "torch", out=leaf),
                )
                assert "leaf" in str(error)
                assert (leaf._version, leaf.tolist()) == (before, [0, 0, 0])
            else:
                ferry.to(VALUES, "torch", out=leaf)
                assert (leaf._version, leaf.tolist()) == (before + 1, [0, 1, 2])
    # The remedies of the error.
    ferry.to(VALUES + 1, "torch", out=leaf.detach())
    assert leaf.tolist() == [1, 2, 3]
    # A value that autograd may have saved.
    out = leaf * 2
    error = refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(VALUES, "torch", out=out)
    )
    ferry.to(VALUES, "torch", **eval(f"dict({error.hint.removeprefix('pass ')})", {"out": out}))
    assert out.tolist() == [0, 1, 2]


def test_backward_of_paddle_sees_that_out_has_changed():
    weight = paddle.to_tensor([1.0, 1.0, 1.0], stop_gradient=False)
    x = paddle.to_tensor([10.0, 20.0, 30.0])
    total = (weight * x).sum()
    ferry.to(VALUES, "paddle", out=x)
    assert (x.tolist(), x.inplace_version) == ([0, 1, 2], 1)
    with pytest.raises(RuntimeError, match="inplace"):
        total.backward()
    assert weight.grad is None


def test_out_that_requires_a_gradient_of_paddle():
    with pytest.raises(ValueError, match="inplace"):
        paddle.to_tensor([0.0], stop_gradient=False).fill_(1)
    leaf = paddle.to_tensor([0.0, 0.0, 0.0], stop_gradient=False)
    error = refused(
        ferry.InvalidArgumentError, ValueError, lambda: ferry.to(VALUES, "paddle", out=leaf)
    )
    assert "paddle.no_grad()" in error.hint
    assert leaf.tolist() == [0, 0, 0]
    with paddle.no_grad():
        ferry.to(VALUES, "paddle", out=leaf)
    assert leaf.tolist() == [0, 1, 2]
    ferry.to(VALUES + 1, "paddle", out=leaf.detach())
    assert leaf.tolist() == [1, 2, 3]


def test_out_that_was_made_in_inference_mode():
    """Such a tensor has no version counter."""
    with torch.inference_mode():
        x = torch.zeros(3)
        ferry.to(VALUES, "torch", out=x)
    assert x.tolist() == [0, 1, 2]
    ferry.to(VALUES[::-1], "torch", out=x)
    assert x.tolist() == [2, 1, 0]


def test_out_is_seen_by_a_trace():
    with ferry.trace() as trips:
        ferry.to(source(), "numpy", out=np.zeros((2, 3), np.float32))
    assert [(trip.bytes_moved, trip.plan.action) for trip in trips] == [(24, "copy")]
    assert "destination" in str(trips[0].plan)
