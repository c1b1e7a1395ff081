"""`@ferry.agnostic`: the body gets the namespace of what came in."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sparse
import tensorflow as tf
import torch
from support import subprocesses
from support.tensors_of_callers import CONVERTED, is_faster, is_tensor, refused, tensor

import tensorferry as ferry

KINDS = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array, "tensorflow": tf.Tensor}


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


@pytest.mark.parametrize("name", CONVERTED)
def test_objects_of_other_libraries(name):
    for _ in range(2):
        assert is_tensor(blend(CONVERTED[name](), tensor("torch"), weight=0), "numpy")
        assert is_tensor(blend(tensor("torch"), CONVERTED[name](), weight=0), "torch")
        same = ferry.agnostic(lambda xp, x, y: xp.add(x, y))(CONVERTED[name](), CONVERTED[name]())
        assert type(same) is np.ndarray
        assert same.tolist() == [0, 2, 4]


def test_a_masked_array_after_one_that_masks_nothing():
    same = ferry.agnostic(lambda xp, *given: given)
    same(np.ma.array([1.0]), np.ones(1))
    with pytest.raises(ferry.NotATensorError) as caught:
        same(np.ones(1), np.ma.array([1.0], mask=[True]))
    assert "x.filled" in caught.value.hint


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


def test_results_of_other_frameworks_return_to_the_origin():
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
    """On two CPU devices of JAX. tests/gpu has the same for a host and a GPU."""
    flags = "--xla_force_host_platform_device_count=2"
    subprocesses.run_program("front/agnostic_devices.py", XLA_FLAGS=flags)


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
        async def delayed(self, xp, x):
            await asyncio.sleep(0)
            return xp.sqrt(x) * self.scale

    thing, x = Thing(), torch.asarray([1.0, 4.0])
    for call in (thing.method, thing.of_class, Thing.static):
        assert call(x).tolist() == [2, 4]
        assert call(x=x).tolist() == [2, 4]
    assert inspect.iscoroutinefunction(thing.delayed)
    assert asyncio.run(thing.delayed(x)).tolist() == [2, 4]


def test_signature_without_xp():
    assert str(inspect.signature(blend)) == "(x, y, *, weight=0.5)"
    assert blend.__doc__ == "Between two."
    assert next(iter(inspect.signature(blend.__wrapped__).parameters)) == "xp"


def test_refusals():
    refused(lambda: blend(1, 2), "blend", "without a tensor")
    refused(lambda: ferry.agnostic(lambda *, xp, x: x), "xp")
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


def test_what_has_no_memory_goes_in_as_it_is():
    """torch.func, and the meta device: all of one framework, so there is nothing to carry."""
    rows = torch.arange(6.0).reshape(2, 3) + 1
    share = ferry.agnostic(lambda xp, x, y: x / xp.sum(y[0] if isinstance(y, list) else y))
    expected = rows / rows.sum(1, keepdim=True)
    assert torch.func.vmap(lambda x: share(x, [x]))(rows).allclose(expected)
    assert torch.func.vmap(share, in_dims=(0, None))(rows, torch.ones(2)).allclose(rows / 2)
    assert share(torch.ones(3, device="meta"), torch.ones(3, device="meta")).is_meta
    with pytest.raises(ferry.NotATensorError, match=r"torch\.func"):
        torch.func.vmap(lambda x: share(np.ones(3, "float32"), x))(rows)


def test_variables_in_a_graph_are_read_there():
    variable = tf.Variable([1.0, 2.0])
    scaled = ferry.agnostic(lambda xp, x, y: x * y)
    calls = [
        tf.function(lambda: scaled(variable, 2.0), autograph=False),
        tf.function(lambda: scaled(y=variable, x=[variable][0] * 0 + 2), autograph=False),
    ]
    for call in calls:
        variable.assign([1.0, 2.0])
        assert call().numpy().tolist() == [2, 4]
        variable.assign([3.0, 4.0])
        with tf.GradientTape() as tape:
            y = call()
        assert y.numpy().tolist() == [6, 8]
        assert tape.gradient(y, variable).numpy().tolist() == [2, 2]


def test_what_is_not_carried_but_has_a_namespace():
    @ferry.agnostic
    def root(xp, x, label="", *, power=2):
        return xp.sqrt(x) if power == 2 else x

    assert root(np.float64(4)) == 2, "what NumPy gives for a sum"
    assert root(label="x", x=np.float32(4)) == 2
    strict = root(array_api_strict.asarray([4.0]))
    assert float(strict[0]) == 2
    assert type(strict) is type(array_api_strict.asarray([4.0]))
    assert root(sparse.COO.from_numpy(np.diag([4.0, 9.0]))).todense().tolist() == [[2, 0], [0, 3]]
    assert root(torch.eye(2).to_sparse(), power=1).is_sparse


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.ma.masked_array([1, 2], [0, 1]), "numpy.ma.MaskedArray"),
        (scipy.sparse.eye_array(2), "dia_array"),
        (tf.ragged.constant([[1], [2, 3]]), "ragged"),
        (tf.sparse.from_dense(tf.eye(2)), "SparseTensor"),
        ("words", "at least one"),
    ],
    ids=["masked", "scipy", "ragged", "sparse", "words"],
)
def test_what_has_none_is_named(x, says):
    refused(lambda: ferry.agnostic(lambda xp, x: x)(x), "without a tensor", says)


def test_the_cost_of_a_call():
    # The figures are of a loaded machine; this notices when plans come into the quick way again.
    x, y = tensor("torch"), tensor("numpy")
    body = ferry.agnostic(lambda xp, *arguments, **keywords: arguments[0])

    body(x, y)

    def share():
        return ferry.to(y, "torch")

    assert is_faster(lambda: body(x), 10, share)
    assert is_faster(lambda: body([x], {"y": x}, z=x), 10, share)
    assert is_faster(lambda: body(x, y), 20, share)
