"""Inputs that are not tensors, and tensors that have no memory to read."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from support.refusals import refused

import tensorferry as ferry

VERBS = {
    "to": ferry.to,
    "plan": ferry.plan,
    "to_async": lambda x, framework: ferry.to_async(x, framework).result(),
}


@dataclasses.dataclass
class Settings:
    rate: float = 0.5
    names: tuple[str, ...] = ("a", "b")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "tree",
    [
        [[1, 2], [3, 4]],
        (1.5,),
        {"a": "text"},
        {"a": [None, 2]},
        [np.float32(1)],
        [b"bytes"],
        [object()],
        Settings(),
        {"module": torch.nn.Linear(2, 2)},
    ],
)
def test_trees_with_leaves_and_no_tensor(verb: str, tree: Any) -> None:
    error = refused(ferry.NotATensorError, TypeError, lambda: VERBS[verb](tree, "torch"))
    assert "holds no tensor: its first leaf is" in str(error)
    is_module = isinstance(tree, dict) and "module" in tree
    assert ("state_dict()" if is_module else "numpy.asarray") in error.hint


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("tree", [[], {}, (), [[], {}], {"a": None}, [None, [None]]])
def test_trees_without_leaves_pass(verb: str, tree: Any) -> None:
    result = VERBS[verb](tree, "torch")
    assert verb == "plan" or result == tree


def test_numbers_beside_tensors_pass() -> None:
    assert ferry.to([1, "x", np.ones(2)], "torch")[:2] == [1, "x"]


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Linear(2, 2),
        torch.nn.Sequential(torch.nn.Linear(2, 2)),
        torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(2))}),
        torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2))]),
        torch.optim.SGD([torch.nn.Parameter(torch.ones(2))]),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_name_their_state_dict(module: Any) -> None:
    for verb in (ferry.to, ferry.plan):
        error = refused(ferry.NotATensorError, TypeError, lambda v=verb: v(module, "numpy"))
        assert "x.state_dict()" in error.hint


def test_a_state_dict_is_carried() -> None:
    found = ferry.to(torch.nn.Linear(2, 3).state_dict(), "numpy")
    assert {name: array.shape for name, array in found.items()} == {"weight": (3, 2), "bias": (3,)}


# Values that are traced: they have no memory, and their own framework needs none.


def check_itself(x: Any, framework: str) -> None:
    assert ferry.to(x, framework) is x
    assert ferry.to([x, 3], framework)[0] is x
    plan = ferry.plan(x, framework)
    assert plan.action == "itself"
    assert (plan.source, plan.target) == (framework, framework)
    assert ferry.to_async(x, framework).result() is x


def test_a_tracer_stays_with_jax() -> None:
    def body(x: Any) -> Any:
        check_itself(x, "jax")
        error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(x, "torch"))
        assert "@ferry.via" in error.hint
        refused(ferry.NotATensorError, TypeError, lambda: ferry.to(x, "jax", dtype="float16"))
        return 2 * ferry.to(x, "jax")

    assert jax.jit(body)(jnp.ones(3)).tolist() == [2, 2, 2]
    assert jax.grad(lambda x: body(x).sum())(jnp.ones(3)).tolist() == [2, 2, 2]


def test_a_symbolic_tensor_stays_with_tensorflow() -> None:
    @tf.function
    def body(x: Any) -> Any:
        check_itself(x, "tensorflow")
        error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(x, "numpy"))
        assert "tf.py_function" in error.hint
        return 2 * ferry.to(x, "tensorflow")

    assert body(tf.ones(3)).numpy().tolist() == [2, 2, 2]


def test_other_tensors_without_plain_memory_stay_with_their_framework() -> None:
    key = jax.random.key(0)
    assert ferry.to(key, "jax") is key
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(key, "torch"))
    masked = np.ma.array([1, 2], mask=[True, False])
    refused(ferry.NotATensorError, TypeError, lambda: ferry.to(masked, "numpy"))


# Decorators.


def test_via_without_parentheses() -> None:
    def double(x: Any) -> Any:
        return 2 * x

    error = refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.via(double))
    assert "double" in str(error)
    assert '@ferry.via("torch")' in error.hint


@pytest.mark.parametrize(
    ("framework", "grad"),
    [
        *((framework, False) for framework in ("numpy", "torch", "jax", "tensorflow")),
        *((framework, True) for framework in ("torch", "jax", "tensorflow")),
    ],
)
def test_torch_compile_breaks_the_graph_at_via(framework: str, grad: bool) -> None:
    """Dynamo does not trace into the body, whose framework it cannot compile."""
    traced = []

    @ferry.via(framework, grad=grad)
    def double(x: Any) -> Any:
        traced.append(torch.compiler.is_compiling())
        return x * 2

    def function(x: Any) -> Any:
        return double(x + 1) + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert compiled(torch.ones(3)).tolist() == [5, 5, 5]
    assert traced == [False, False]


def test_decorated_functions_take_and_return_what_is_not_a_tensor() -> None:
    @ferry.via("torch")
    def describe(x: Any, scale: int = 1) -> Any:
        return {"scale": scale, "is_tensor": isinstance(x, torch.Tensor)}

    assert describe(3) == {"scale": 1, "is_tensor": False}
    assert describe([1, 2], scale=4) == {"scale": 4, "is_tensor": False}
    assert describe(np.ones(2)) == {"scale": 1, "is_tensor": True}
