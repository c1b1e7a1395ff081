"""Containers of other libraries, and objects that pass through a tree with tensors in them."""

from __future__ import annotations

import functools

import attrs
import cv2
import equinox
import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest
import tokenizers
import torch
import transformers
import uncertainties
from support.followed_hints import follow
from support.refusals import refused

import tensorferry as ferry


def leaf(start: float = 0.0) -> np.ndarray:
    return np.arange(start, start + 3, dtype=np.float32)


def is_leaf(tensor, start: float = 0.0) -> bool:
    return type(tensor) is torch.Tensor and tensor.tolist() == [start, start + 1, start + 2]


def test_attrs_classes_are_not_constructed_again():
    def count(instance, attribute, value):
        type(instance).checked += 1

    @attrs.frozen(slots=True)
    class Immutable:
        checked = 0
        a: object = attrs.field(converter=np.asarray)
        b: object = attrs.field(default=5, init=False)

    @attrs.define(slots=False)
    class Ordinary:
        checked = 0
        a: object = attrs.field(validator=count)
        _private: object = None
        unset: object = attrs.field(init=False)

    result = ferry.to([Immutable([0.0, 1, 2])], "torch", dtype="float32")[0]
    assert (type(result), result.b) == (Immutable, 5)
    assert is_leaf(result.a)
    source = Ordinary(leaf(), [leaf(1)])
    source.extra = "kept"
    result = ferry.to(source, "torch")
    assert Ordinary.checked == 1
    assert is_leaf(result.a)
    assert is_leaf(result._private[0], 1)
    assert (result.extra, hasattr(result, "unset")) == ("kept", False)
    assert [part.name for part in ferry.plan(source, "torch").parts] == [".a", "._private[0]"]


def test_attrs_classes_with_slots():
    class Base:
        """Its instances have a `__dict__`."""

    for define in (attrs.define, attrs.frozen):

        @define
        class Slotted(Base):
            a: object
            unset: object = attrs.field(init=False)

        source = Slotted([leaf()])
        source.__dict__["extra"] = 5
        result = ferry.to(source, "torch")
        assert is_leaf(result.a[0])
        assert (result.extra, hasattr(result, "unset")) == (5, False)
        assert type(source.a[0]) is np.ndarray
        result.__dict__["extra"] = 6
        assert source.extra == 5


def test_attrs_classes_keep_what_is_not_a_field():
    class Base:
        __slots__ = ("s", "unset")

    @attrs.define(slots=False)
    class OfSlots(Base):
        a: object

    @attrs.define
    class Parent:
        a: object
        missing: object = attrs.field(init=False)

    class Child(Parent):
        __slots__ = ("other",)

    for source, name in ((OfSlots([leaf()]), "s"), (Child([leaf()]), "other")):
        setattr(source, name, 5)
        result = ferry.to(source, "torch")
        assert is_leaf(result.a[0])
        assert getattr(result, name) == 5
        assert not hasattr(result, "missing")
        assert not hasattr(result, "unset")

    for define in (attrs.define, attrs.frozen, functools.partial(attrs.define, kw_only=True)):

        @define
        class FailedError(Exception):
            a: object
            msg: object

        source = FailedError(a=leaf(), msg="text")
        source.__dict__["later"] = 5
        result = ferry.to(source, "torch")
        assert is_leaf(result.a)
        assert (result.msg, result.later) == ("text", 5)
        assert result.args == source.args

    @attrs.define
    class Copied:
        copies = 0
        a: object

        def __copy__(self):
            Copied.copies += 1
            return Copied(self.a)

    assert is_leaf(ferry.to(Copied(leaf()), "torch").a)
    assert Copied.copies == 1


def test_attrs_classes_with_attributes_that_are_no_fields():
    @attrs.define(slots=False)
    class Holder:
        a: object

    source = Holder(leaf())
    source.extra = torch.ones(2)
    with pytest.warns(UserWarning, match="Holder in a tree keeps attributes"):
        ferry.to(source, "torch")
    (note,) = ferry.plan([source], "torch").notes
    assert "[0].extra (torch.Tensor)" in note


def test_a_number_with_an_uncertainty_passes_with_its_hint():
    (note,) = ferry.plan([uncertainties.ufloat(1, 0.1), leaf()], "torch").notes
    assert "pass numpy.asarray(x.nominal_value)" in note


def test_attrs_classes_with_gradients():
    @attrs.frozen
    class Batch:
        x: object

    x = torch.ones(2, requires_grad=True)
    ferry.via("jax", grad=True)(lambda batch: (batch.x**2).sum())(Batch(x)).backward()
    assert x.grad.tolist() == [2, 2]


def test_a_module_of_equinox():
    class Scaled(equinox.Module):
        layer: equinox.nn.Linear
        shape: np.ndarray = equinox.field(static=True)

    shape = (2, 3)
    module = Scaled(equinox.nn.Linear(3, 2, key=jax.random.key(0)), shape)
    there = ferry.to(module, "torch")
    assert type(there.layer.weight) is torch.Tensor
    assert there.shape is shape
    assert [part.name for part in ferry.plan(module, "torch").parts] == [
        ".layer.weight",
        ".layer.bias",
    ]
    back = ferry.to(there, "jax")
    assert jax.tree_util.tree_structure(back) == jax.tree_util.tree_structure(module)
    assert np.array_equal(back.layer(jnp.ones(3)), module.layer(jnp.ones(3)))


@pytest.mark.parametrize("kind", [transformers.DynamicCache, transformers.EncoderDecoderCache])
def test_a_cache_of_transformers_passes_with_a_warning(kind):
    cache = transformers.DynamicCache()
    cache.update(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2), 0)
    if kind is transformers.EncoderDecoderCache:
        cache = kind(cache, transformers.DynamicCache())
    if kind in torch.utils._pytree.SUPPORTED_NODES:
        pytest.fail("PyTorch knows the cache: test that it is converted")
    with pytest.warns(UserWarning, match=f"{kind.__name__} in a tree"):
        result = ferry.to({"cache": cache, "x": leaf()}, "torch")
    assert result["cache"] is cache
    (note,) = ferry.plan({"cache": cache, "x": leaf()}, "torch").notes
    assert f"['cache'] (transformers.cache_utils.{kind.__name__})" in note


def test_a_tokenizer_and_a_configuration_pass_in_silence():
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    leaves = [
        model,
        transformers.PreTrainedTokenizerFast(tokenizer_object=model),
        transformers.GenerationConfig(),
    ]
    result = ferry.to([*leaves, leaf()], "torch")
    assert all(one is other for one, other in zip(result, leaves, strict=False))


NUMBERS = numba.typed.Dict()
NUMBERS["a"] = leaf()


@pytest.mark.parametrize("call", [ferry.to, ferry.plan])
@pytest.mark.parametrize("x", [cv2.UMat(leaf()), numba.typed.List([leaf()]), NUMBERS], ids=type)
def test_containers_of_opencv_and_numba_are_refused(x, call):
    for tree in (x, {"x": x}):
        error = refused(ferry.NotATensorError, TypeError, lambda tree=tree: call(tree, "torch"))
        (found,) = torch.utils._pytree.tree_leaves(ferry.to(follow(error, x=x), "torch"))
        assert is_leaf(found.ravel())
