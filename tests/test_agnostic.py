"""`@ferry.agnostic`: the body gets the namespace of what came in."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import inspect
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry
from tensorferry.calls import meeting

KINDS = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array, "tensorflow": tf.Tensor}


@pytest.fixture(autouse=True)
def _namespace(monkeypatch):
    """Stands in for `ferry.namespace` where it is not there."""
    if importlib.util.find_spec("tensorferry.namespace") is not None:
        return
    spaces = {"numpy": np, "torch": torch, "jax": jnp, "tensorflow": tf.experimental.numpy}

    def namespace(*xs):
        [x] = xs
        return next(spaces[name] for name, kind in KINDS.items() if isinstance(x, kind))

    stub = types.ModuleType("tensorferry.namespace")
    stub.namespace = namespace
    monkeypatch.setitem(sys.modules, "tensorferry.namespace", stub)
    monkeypatch.setattr(meeting, "_found", None)


def tensor(framework: str, start: float = 0.0):
    return ferry.to(np.arange(start, start + 3, dtype=np.float32), framework, copy=True)


def refused(call, *says: str) -> None:
    with pytest.raises(ferry.InvalidArgument) as caught:
        call()
    fact, hint = str(caught.value).split("\n")
    assert hint.startswith("hint: ")
    for words in says:
        assert words in fact + hint


@ferry.agnostic
def blend(xp, x, y, *, weight=0.5):
    """Between two."""
    assert type(x) is type(y)
    return xp.sqrt(xp.square(x)) * weight + y * (1 - weight)


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_mixed_inputs_meet_in_the_framework_of_the_first(first, second):
    result = blend(tensor(first), tensor(second, 2), weight=0.25)
    assert isinstance(result, KINDS[first])
    assert ferry.to(result, "numpy").tolist() == [1.5, 2.5, 3.5]


def test_what_is_of_one_framework_goes_in_as_it_is():
    x, box = torch.ones(3, requires_grad=True), [torch.ones(3)]

    @ferry.agnostic
    def body(xp, a, b):
        assert a is x
        assert b is box
        return (a * b[0]).sum()

    body(x, box).backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_the_first_is_that_of_the_signature():
    assert isinstance(blend(y=tensor("torch"), x=tensor("jax")), jax.Array)
    assert isinstance(
        ferry.agnostic(lambda xp, n, a: xp.sqrt(a["k"]))(3, {"k": tensor("jax")}), jax.Array
    )


def test_dataclasses():
    @dataclasses.dataclass
    class Box:
        x: object

    @ferry.agnostic
    def body(xp, box, y):
        return Box(xp.sqrt(box.x) + xp.sqrt(y))

    assert isinstance(body(Box(tensor("jax")), tensor("torch")).x, jax.Array)


def test_results_of_other_frameworks_go_home():
    body = ferry.agnostic(lambda xp, x: {"n": np.ones(3), "x": x, "none": None})
    result = body(tensor("torch"))
    assert isinstance(result["n"], torch.Tensor)
    assert result["none"] is None


def test_tracing():
    x = np.asarray([1.0, 4.0, 9.0], np.float32)
    root = ferry.agnostic(lambda xp, x, y: xp.sqrt(x) + y)
    y = torch.ones(3)
    assert jax.jit(lambda x: root(x, y))(x).tolist() == [2, 3, 4]
    slope = jax.grad(lambda x: root(x, y).sum())(jnp.asarray(x))
    assert np.allclose(slope, [0.5, 0.25, 1 / 6])
    traced = tf.function(lambda x: root(x, tf.ones(3)))
    assert traced(tf.constant(x)).numpy().tolist() == [2, 3, 4]


def test_devices_that_differ():
    # A tensor on another device, as far as a machine without a GPU can tell.
    meta = type("Plan", (), {"source": "cupy", "source_device": "cuda:0", "action": "copy"})()
    home = meeting.Home("numpy", "cpu")
    with pytest.MonkeyPatch.context() as patch:
        tree = type("Tree", (), {"plans": [("[0]", meta)]})()
        patch.setattr(meeting, "plan", lambda *_: tree)
        refused(
            lambda: meeting._met(((np.ones(3),), {}), home, None, "f"),
            "f was passed a numpy tensor on cpu and a cupy tensor on cuda:0",
            "device=",
        )


def test_device_asks_for_a_move():
    body = ferry.agnostic(device="cpu")(lambda xp, x, y: x + y)
    assert isinstance(body(tensor("jax"), tensor("torch")), jax.Array)
    with pytest.raises(ferry.FerryError):
        ferry.agnostic(device="cuda:99")(lambda xp, x: x)(tensor("torch"))


def test_methods_and_async():
    class Thing:
        scale = 2.0

        @ferry.agnostic
        def method(self, xp, x):
            return xp.sqrt(x) * self.scale

        @classmethod
        @ferry.agnostic
        def of_class(cls, xp, x):
            return xp.sqrt(x) * cls.scale

        @ferry.agnostic
        @staticmethod
        def static(xp, x):
            return xp.sqrt(x) * 2.0

        @ferry.agnostic
        async def later(self, xp, x):
            await asyncio.sleep(0)
            return xp.sqrt(x) * self.scale

    thing, x = Thing(), torch.asarray([1.0, 4.0])
    for call in (thing.method, thing.of_class, Thing.static):
        assert call(x).tolist() == [2, 4]
        assert call(x=x).tolist() == [2, 4]
    assert inspect.iscoroutinefunction(thing.later)
    assert asyncio.run(thing.later(x)).tolist() == [2, 4]


def test_signature_without_xp():
    assert str(inspect.signature(blend)) == "(x, y, *, weight=0.5)"
    assert blend.__doc__ == "Between two."
    assert next(iter(inspect.signature(blend.__wrapped__).parameters)) == "xp"


def test_refusals():
    refused(lambda: blend(1, 2), "blend was passed no tensor")
    refused(lambda: ferry.agnostic(lambda x: x), "no parameter xp")
    refused(lambda: ferry.agnostic(Exception), "class")

    def generator(xp):
        yield 1

    refused(lambda: ferry.agnostic(generator), "generator")


def test_the_bodys_errors_are_its_own():
    @ferry.agnostic
    def body(xp, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        body(tensor("numpy"))
    assert caught.value.__context__ is None
