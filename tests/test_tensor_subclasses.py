"""A tensor of a subclass of torch.Tensor keeps its class and what it stores where PyTorch does."""

from __future__ import annotations

import pytest
import torch

import tensorferry as ferry


class Labelled(torch.Tensor):
    """A tensor with a label, which its copies keep."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        if isinstance(result, cls) and isinstance(args[0], cls):
            result.label = args[0].label
        return result


def labelled() -> Labelled:
    tensor = torch.arange(6.0).reshape(2, 3).as_subclass(Labelled)
    tensor.label = "kept"
    return tensor


@pytest.mark.parametrize("options", [{"copy": True}, {"dtype": "float16"}])
def test_a_copy_keeps_the_class(options):
    source = labelled()
    dtype = torch.float16 if "dtype" in options else torch.float32
    for convert in (
        lambda: ferry.to(source, "torch", **options),
        lambda: ferry.to({"a": source}, "torch", **options)["a"],
        lambda: ferry.to_async(source, "torch", **options).result(),
        lambda: next(iter(ferry.feed([source], "torch", **options))),
        lambda: ferry.via("torch", returns="keep", **options)(lambda x: x)(source),
    ):
        result = convert()
        assert (type(result), result.label, result.dtype) == (Labelled, "kept", dtype)
        assert result.data_ptr() != source.data_ptr()
        assert result.tolist() == source.tolist()
    plan = ferry.plan(source, "torch", **options)
    assert "keeps the class" in plan.notes[-1]
    with ferry.trace() as trips:
        ferry.to(source, "torch", **options)
    assert trips[0].plan.notes == plan.notes
    assert trips[0].bytes_moved == plan.bytes_moved == 6 * dtype.itemsize


def test_a_copy_has_no_gradient():
    source = torch.ones(3).as_subclass(Labelled)
    source.label = "kept"
    source.requires_grad_()
    with torch.no_grad():
        result = ferry.to(source, "torch", copy=True)
    assert (type(result), result.requires_grad) == (Labelled, False)


def test_other_tensors_and_targets_are_copied_here():
    for source in (torch.ones(3), torch.nn.Parameter(torch.ones(3), requires_grad=False)):
        assert type(ferry.to(source, "torch", copy=True)) is torch.Tensor
        assert not ferry.plan(source, "torch", copy=True).notes
    assert not ferry.plan(labelled(), "numpy", copy=True).notes
