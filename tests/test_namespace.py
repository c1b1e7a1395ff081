"""`ferry.array_namespace`: which namespace it returns, what it refuses, and functions for all."""

from __future__ import annotations

import array_api_compat
import array_api_compat.numpy
import array_api_compat.torch
import array_api_strict
import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import paddle
import pytest
import scipy.sparse
import tensorflow as tf
import torch
from support import subprocesses
from support.tensors_of_callers import CONVERTED

import tensorferry as ferry
from tensorferry.array_api import tensorflow as tensorflow_arrays

TENSORS = {
    "numpy": lambda: np.ones(3),
    "torch": lambda: torch.ones(3),
    "jax": lambda: jnp.ones(3),
    "tensorflow": lambda: tf.ones(3),
}


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (np.ones(3), array_api_compat.numpy),
        (np.float64(3), array_api_compat.numpy),
        (np.ones(3).view(np.recarray), array_api_compat.numpy),
        (torch.ones(3), array_api_compat.torch),
        (torch.nn.Parameter(torch.ones(3)), array_api_compat.torch),
        (jnp.ones(3), jnp),
        (tf.ones(3), tensorflow_arrays),
        (tf.Variable([1.0]), tensorflow_arrays),
        (mx.ones(3), mx),
        (array_api_strict.ones(3), array_api_strict),
    ],
    ids=lambda x: type(x).__name__,
)
def test_whose_namespace(x, want):
    assert ferry.array_namespace(x) is want
    assert ferry.array_namespace(None, 1, x, 2.5, x, True, 1j) is want


@pytest.mark.parametrize("name", CONVERTED)
def test_objects_of_other_libraries_have_that_of_numpy(name):
    x = CONVERTED[name]()
    assert ferry.array_namespace(x, None, np.ones(3)) is array_api_compat.numpy
    with pytest.raises(ferry.InvalidArgumentError, match="tensors of torch and numpy"):
        ferry.array_namespace(torch.ones(3), x)


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_it_is_that_of_array_api_compat(name):
    x = TENSORS[name]()
    assert ferry.array_namespace(x) is array_api_compat.array_namespace(x)


def test_inside_jax_transformations():
    def square(x):
        return ferry.array_namespace(x).sum(x**2)

    assert jax.jit(square)(jnp.ones(3)) == 3
    assert jax.grad(square)(jnp.ones(3)).tolist() == [2, 2, 2]
    assert jax.vmap(square)(jnp.ones((2, 3))).tolist() == [3, 3]


@pytest.mark.parametrize("one", TENSORS)
@pytest.mark.parametrize("other", TENSORS)
def test_mixed(one, other):
    if one == other:
        assert ferry.array_namespace(TENSORS[one](), TENSORS[other]())
        return
    with pytest.raises(
        ferry.InvalidArgumentError, match=f"tensors of {one} and {other}"
    ) as refused:
        ferry.array_namespace(TENSORS[one](), TENSORS[other]())
    assert "ferry.to" in refused.value.hint
    assert "@ferry.agnostic" in refused.value.hint


@pytest.mark.parametrize(
    ("xs", "says"),
    [
        ((), "without a tensor"),
        ((1, None, 2.5), "without a tensor"),
        (([1, 2],), "builtins.list"),
        (("text", np.ones(2)), "builtins.str"),
        (([np.ones(2)],), "builtins.list"),
        ((b"text",), "builtins.bytes"),
        ((paddle.ones([2]),), "paddle have no Array API"),
        ((np.ma.array([1], mask=[True]),), "MaskedArray"),
        ((tf.ragged.constant([[1], [1, 2]]),), "ragged"),
        ((tf.sparse.from_dense([[1, 0]]),), "sparse"),
        ((scipy.sparse.csr_array(np.eye(2)),), "sparse"),
        ((np.ones(2), torch.ones(2), jnp.ones(2)), "numpy and torch and jax"),
    ],
)
def test_refusals(xs, says):
    with pytest.raises(ferry.InvalidArgumentError, match=says) as refused:
        ferry.array_namespace(*xs)
    assert refused.value.hint
    assert str(refused.value).count("\n") == 1


def test_nothing_is_imported_that_is_not_asked_for():
    subprocesses.run_program("front/imports_on_demand.py", "namespace")


# Functions written once.


def softmax(x, axis=-1):
    xp = ferry.array_namespace(x)
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def standardise(x):
    xp = ferry.array_namespace(x)
    spread = xp.std(x, axis=0, correction=1, keepdims=True)
    return (x - xp.mean(x, axis=0, keepdims=True)) / xp.where(spread > 0, spread, 1.0)


def laplacian(weights):
    """The normalised Laplacian of a graph, and its two smallest eigenvalues."""
    xp = ferry.array_namespace(weights)
    degree = xp.sum(weights, axis=1)
    scale = xp.where(degree > 0, 1 / xp.sqrt(xp.clip(degree, min=1e-30)), 0.0)
    n = weights.shape[0]
    result = xp.eye(n, dtype=weights.dtype) - scale[:, None] * weights * scale[None, :]
    return xp.concat([xp.reshape(result, (-1,)), xp.linalg.eigvalsh(result)[:2]])


def principal_components(x, count=2):
    xp = ferry.array_namespace(x)
    centred = x - xp.mean(x, axis=0, keepdims=True)
    _, values, vh = xp.linalg.svd(centred, full_matrices=False)
    turned = vh * xp.sign(xp.sum(vh, axis=1, keepdims=True))
    return xp.concat([xp.matmul(centred, xp.matrix_transpose(turned[:count, :])), values[None, :2]])


def histogram(x):
    """Counts of rounded values, which takes sets, casts, and integers."""
    xp = ferry.array_namespace(x)
    whole = xp.astype(xp.round(x), xp.int32)
    values, counts = xp.unique_counts(whole)
    order = xp.argsort(values)
    return xp.stack([xp.take(values, order), xp.astype(xp.take(counts, order), xp.int32)])


def nearest(x):
    """The index of each row's nearest other row."""
    xp = ferry.array_namespace(x)
    norms = xp.linalg.vector_norm(x, axis=-1) ** 2
    distance = norms[:, None] + norms[None, :] - 2 * xp.matmul(x, xp.matrix_transpose(x))
    distance = xp.where(xp.eye(x.shape[0], dtype=xp.bool), xp.inf, distance)
    return xp.astype(xp.argmin(distance, axis=1), xp.int32)


@pytest.mark.parametrize(
    "function", [softmax, standardise, laplacian, principal_components, histogram, nearest]
)
def test_written_once(function):
    x = np.random.default_rng(3).normal(size=(8, 8)).astype(np.float32)
    if function is laplacian:
        x = np.abs(x + x.T)
    results = {}
    for name in TENSORS:
        result = function(ferry.to(x, name, copy=True))
        assert type(result).__module__.startswith((name, "jax")), name
        results[name] = ferry.to(result, "numpy")
    for name, result in results.items():
        assert result.dtype == results["numpy"].dtype, name
        np.testing.assert_allclose(
            result, results["numpy"], rtol=1e-4, atol=1e-4, err_msg=f"{function.__name__} {name}"
        )
    compiled = tf.function(function)(tf.constant(x))
    np.testing.assert_allclose(compiled.numpy(), results["numpy"], rtol=1e-4, atol=1e-4)
