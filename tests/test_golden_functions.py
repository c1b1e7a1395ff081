"""The wording of the errors of `via`, `agnostic` and `array_namespace`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from support import golden_text

import tensorferry as ferry


def generator(x):
    yield x


async def coroutine(x):
    return x


class Ordinary:
    pass


def identity(x, *_rest):
    return x


def with_grad(framework):
    return ferry.via(framework, grad=True)(identity)


CALLS = {
    "via without a framework": lambda: ferry.via(identity),
    "a property": lambda: ferry.via("torch")(property(identity)),
    "a class": lambda: ferry.via("torch")(Ordinary),
    "not a function": lambda: ferry.via("torch")(3),
    "a generator": lambda: ferry.via("torch")(generator),
    "returns with an unknown key": lambda: ferry.via("torch", returns={"dtyp": "int8"}),
    "returns keep with a dtype": lambda: ferry.via(
        "torch", returns={"framework": "keep", "dtype": "int8"}
    ),
    "returns a number": lambda: ferry.via("torch", returns=3),
    "grad of numpy": lambda: ferry.via("numpy", grad=True),
    "grad with returns": lambda: ferry.via("jax", grad=True, returns="numpy"),
    "grad of an async function": lambda: ferry.via("jax", grad=True)(coroutine),
    "grad of two frameworks": lambda: with_grad("jax")(
        tf.ones(2), torch.ones(2, requires_grad=True)
    ),
    "grad of a sparse tensor": lambda: with_grad("jax")(
        torch.eye(2).to_sparse().requires_grad_(), torch.ones(2)
    ),
    "agnostic without xp": lambda: ferry.agnostic(identity),
    "agnostic without a tensor": lambda: ferry.agnostic(lambda xp, x: x)(3),
    "array_namespace without a tensor": lambda: ferry.array_namespace(3),
    "array_namespace of text": lambda: ferry.array_namespace("x"),
    "array_namespace of two frameworks": lambda: ferry.array_namespace(np.ones(2), jnp.ones(2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_errors_have_a_hint(name):
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        CALLS[name]()
    assert caught.value.hint


def test_wording():
    texts = {}
    for name, call in CALLS.items():
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            call()
        texts[name] = str(caught.value)
    golden_text.check("functions", texts)
