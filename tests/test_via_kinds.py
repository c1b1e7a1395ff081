"""What `@ferry.via` can be put on: methods, async functions, others' functions; and what not."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import pickle
import typing

import numpy as np
import pytest
import torch
from support.tensors_of_callers import KINDS, is_tensor, refused, tensor

import tensorferry as ferry


class Thing:
    """Has methods of every kind; a dataclass is no tree where it is `self`."""

    def __init__(self, scale):
        self.scale = scale

    @ferry.via("torch")
    def method(self, x):
        assert isinstance(x, torch.Tensor)
        return x * self.scale

    @classmethod
    @ferry.via("torch")
    def of_class(cls, x):
        assert isinstance(cls, type)
        assert isinstance(x, torch.Tensor)
        return x

    @ferry.via("torch")
    @classmethod
    def of_class_inside(cls, x):
        assert isinstance(cls, type)
        assert isinstance(x, torch.Tensor)
        return x

    @staticmethod
    @ferry.via("torch")
    def static(x):
        assert isinstance(x, torch.Tensor)
        return x

    @ferry.via("torch")
    @staticmethod
    def static_inside(x):
        assert isinstance(x, torch.Tensor)
        return x

    @property
    @ferry.via("numpy", returns="torch")
    def scaled(self):
        return np.asarray([self.scale])

    @ferry.via("torch")
    def __call__(self, x):
        assert isinstance(x, torch.Tensor)
        return x


@pytest.mark.parametrize(
    "name",
    ["method", "of_class", "of_class_inside", "static", "static_inside", "__call__"],
)
def test_methods(name):
    thing = Thing(1.0)
    assert is_tensor(getattr(thing, name)(tensor("jax")), "jax")
    assert is_tensor(getattr(thing, name)(x=tensor("jax")), "jax")
    if "class" in name or "static" in name:
        assert is_tensor(getattr(Thing, name)(tensor("jax")), "jax")
    else:
        assert is_tensor(getattr(Thing, name)(thing, tensor("jax")), "jax")


def test_a_property_above_it():
    assert isinstance(Thing(2.0).scaled, torch.Tensor)


def test_self_is_not_a_tree():
    @dataclasses.dataclass
    class Model:
        weight: np.ndarray
        calls: int = 0

        @ferry.via("torch")
        def run(self, x):
            self.calls += 1
            assert isinstance(self.weight, np.ndarray)
            return x

    model = Model(np.ones(3))
    assert is_tensor(model.run(tensor("jax")), "jax"), "nor is it the first tensor"
    assert model.calls == 1


def test_functions_of_others():
    assert ferry.via("numpy")(np.sum)(torch.ones(3)) == 3
    assert isinstance(ferry.via("numpy")(np.cumsum)(torch.ones(3)), torch.Tensor)
    partial = ferry.via("torch")(functools.partial(torch.add, other=1))
    assert is_tensor(partial(tensor("numpy")), "numpy", 1)
    assert is_tensor(ferry.via("torch")(torch.nn.Identity())(tensor("jax")), "jax")


def test_async():
    @ferry.via("torch")
    async def body(x, *, others):
        await others.wait()
        assert isinstance(x, torch.Tensor)
        return x

    class Calls:
        async def __call__(self, x):
            return x

    async def main():
        frameworks = list(KINDS)
        # All calls are inside the body at once.
        others = asyncio.Barrier(len(frameworks))
        results = await asyncio.gather(*[body(tensor(n), others=others) for n in frameworks])
        assert all(is_tensor(r, n) for r, n in zip(results, frameworks, strict=True))
        assert is_tensor(await ferry.via("torch")(Calls())(tensor("jax")), "jax")

    assert inspect.iscoroutinefunction(body)
    asyncio.run(main())


def generator():
    yield 1


async def async_generator():
    yield 1


class Yields:
    def __call__(self):
        yield 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (generator, "generator"),
        (async_generator, "generator"),
        (Yields(), "generator"),
        (Thing, "class"),
        (property(lambda self: 1), "@property above"),
        (3, "takes a function"),
    ],
)
def test_refused_when_decorated(body, says):
    refused(lambda: ferry.via("torch")(body), says, "via")


def test_unknown_frameworks():
    refused(lambda: ferry.via("torche"), 'unknown framework "torche"', 'did you mean "torch"?')
    refused(lambda: ferry.via(typing), "typing")


@ferry.via("torch")
def documented(x: typing.Any, y: int = 3, *, z: str = "z") -> typing.Any:
    """Says what it does."""
    return x


def test_signature_and_docs_are_kept():
    assert documented.__name__ == "documented"
    assert documented.__doc__ == "Says what it does."
    assert list(inspect.signature(documented).parameters) == ["x", "y", "z"]
    assert inspect.signature(documented) == inspect.signature(documented.__wrapped__)
    assert inspect.isfunction(documented)
    assert documented.__wrapped__(3) == 3
    assert typing.get_type_hints(documented)["y"] is int


def test_it_can_be_pickled():
    assert pickle.loads(pickle.dumps(documented)) is documented


def test_a_container_in_itself():
    cyclic: list[typing.Any] = [tensor("numpy")]
    cyclic.append(cyclic)
    within: list[typing.Any] = []
    within.append(within)
    for wrap in (
        ferry.via("torch"),
        ferry.via("torch", grad=True),
        lambda body: ferry.agnostic(lambda xp, x, y=None: body(x, y)),
    ):
        function = wrap(lambda x, y=None: x)
        refused(lambda f=function: f(cyclic), "contains itself")
        refused(lambda f=function: f(within), "contains itself")
        refused(lambda f=function: f(tensor("torch"), y=within), "contains itself")


def test_wrong_arguments_are_the_bodys_error():
    with pytest.raises(TypeError, match="unexpected keyword"):
        documented(tensor("numpy"), colour=1)
