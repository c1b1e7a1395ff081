"""`@ferry.via(..., grad=True)`: gradients across the border, against numerical ones."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sparse
import tensorflow as tf
import torch
from jax.experimental import sparse as jax_sparse
from jax.test_util import check_grads
from support.introspect import x64
from support.tensors_of_callers import refused

import tensorferry as ferry

SMOOTH = ("torch", "jax", "tensorflow")
MODULES = {"torch": torch, "jax": jnp, "tensorflow": tf.math}


@pytest.fixture(autouse=True)
def _x64_enabled():
    with x64(True):
        yield


def bent(body: str):
    """A function of two arguments whose gradient is none of the simple ones."""
    module = MODULES[body]

    @ferry.via(body, grad=True)
    def function(x, y):
        return module.exp(x) * y[0] + module.sin(y[0] * x), {"tanh": module.tanh(x)}

    return function


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# From torch.


@pytest.mark.parametrize("body", ["jax", "tensorflow"])
def test_torch_against_numerical_gradients(body):
    x = torch.from_numpy(values(3, 2)).requires_grad_()
    y = torch.from_numpy(values(2, seed=1)).requires_grad_()

    def flat(x, y):
        first, rest = bent(body)(x, [y])
        return first, rest["tanh"]

    assert torch.autograd.gradcheck(flat, (x, y))


@pytest.mark.parametrize("body", ["jax", "tensorflow"])
def test_torch_complex(body):
    exp, conj = (jnp.exp, jnp.conj) if body == "jax" else (tf.exp, tf.math.conj)
    function = ferry.via(body, grad=True)(lambda z: exp(z) * conj(z) * z)
    z = torch.from_numpy(values(3) + 1j * values(3, seed=1)).requires_grad_()
    assert torch.autograd.gradcheck(function, (z,))


def test_torch_views_and_gradients_of_any_layout():
    base = torch.from_numpy(values(4, 6)).requires_grad_()
    function = ferry.via("jax", grad=True)(lambda x: jnp.sin(x) * 2)
    (function(base.T[::2])).sum().backward()
    expected = torch.zeros(4, 6, dtype=torch.float64)
    expected[:, ::2] = 2 * torch.cos(base[:, ::2])
    assert torch.allclose(base.grad, expected)


def test_torch_integers_have_none():
    @ferry.via("jax", grad=True)
    def function(x, rows, flag):
        picked = x[rows] * jnp.where(flag, 2.0, 1.0)
        return picked, jnp.argmax(picked), "text", None, picked > 0

    x = torch.from_numpy(values(4)).requires_grad_()
    picked, most, text, none, positive = function(x, torch.tensor([0, 2]), torch.tensor(True))
    assert picked.requires_grad
    assert not most.requires_grad
    assert not positive.requires_grad
    assert (text, none) == ("text", None)
    picked.sum().backward()
    assert x.grad.tolist() == [2, 0, 2, 0]


@pytest.mark.parametrize("body", ["jax", "tensorflow"])
def test_torch_arguments_that_are_not_used(body):
    function = ferry.via(body, grad=True)(lambda x, y, z: (x * 2, z * 1))
    x, y, z = (torch.ones(2, requires_grad=True) for _ in range(3))
    function(x, y, z)[0].sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert y.grad is None or y.grad.tolist() == [0, 0]
    assert z.grad is None or z.grad.tolist() == [0, 0]


def test_torch_without_gradients():
    function = ferry.via("jax", grad=True)(lambda x: x * 2)
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not function(x).requires_grad
    assert not function(torch.ones(2)).requires_grad
    assert function(x).requires_grad
    assert isinstance(function(np.ones(2)), np.ndarray), "callers without gradients can call too"
    assert isinstance(function(x=jnp.ones(2)), jax.Array)


@pytest.mark.parametrize("body", ["jax", "tensorflow"])
def test_torch_second_derivatives_raise(body):
    exp = MODULES[body].exp
    x = torch.ones(2, requires_grad=True, dtype=torch.float64)
    y = ferry.via(body, grad=True)(lambda x: exp(x))(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.allclose(first, torch.exp(x))
    refused(lambda: (first.sum() + x.sum()).backward(), "second")


def test_torch_notices_writes_between_the_passes():
    function = ferry.via("jax", grad=True)(lambda x: jnp.exp(x))
    x = torch.ones(64, requires_grad=True)
    y = function(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    x = torch.ones(64, requires_grad=True)
    z = x * 1
    y = function(z)
    z.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_torch_backward_twice():
    x = torch.ones(2, requires_grad=True)
    y = ferry.via("jax", grad=True)(lambda x: x * 3)(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [6, 6]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_torch_memory_is_shared():
    seen = []

    @ferry.via("jax", grad=True)
    def function(x):
        seen.append(x)
        return x * 2

    x = torch.ones(1024, requires_grad=True)
    with ferry.trace() as trips:
        function(x).sum().backward()
    forth = next(t for t in trips if t.plan.source == "torch")
    assert forth.shares
    assert all(t.shares for t in trips if t.plan.source == "jax")


def test_torch_modules_train():
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    loss = ferry.via("jax", grad=True)(lambda y: (y**2).mean())
    x = torch.from_numpy(values(5, 3))
    loss(layer(x)).backward()
    through = layer.weight.grad.clone()
    layer.zero_grad()
    (layer(x) ** 2).mean().backward()
    assert torch.allclose(through, layer.weight.grad)


@dataclasses.dataclass
class Batch:
    x: object
    name: str = "b"


Pair = collections.namedtuple("Pair", "a b")


def test_torch_containers():
    @ferry.via("jax", grad=True)
    def function(batch, pair, *, more):
        assert isinstance(batch.x, jax.Array)
        return Batch(batch.x * pair.a, batch.name), [pair.b * more["k"][0]]

    x, a, k = (torch.full((2,), float(n), requires_grad=True) for n in (2, 3, 4))
    batch, (last,) = function(Batch(x), Pair(a, a), more={"k": (k, 3)})
    assert type(batch) is Batch
    assert batch.name == "b"
    (batch.x + last).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert a.grad.tolist() == [6, 6], "one object twice has one gradient"
    assert k.grad.tolist() == [3, 3]


def test_a_cast_on_the_way_in():
    function = ferry.via("jax", grad=True, dtype="float32")(lambda x: x * 2)
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = function(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.dtype == torch.float64
    assert x.grad.tolist() == [2, 2]


# From JAX.


def jax_function(body: str):
    module = MODULES[body]

    @ferry.via(body, grad=True)
    def function(x, y):
        return module.exp(x) * y["k"] + module.sin(y["k"] * x), [module.tanh(x)]

    return lambda x, y: function(x, {"k": y})


@pytest.mark.parametrize("body", ["torch", "tensorflow"])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_jax_against_numerical_gradients(body, jit):
    function = jax_function(body)
    x, y = jnp.asarray(values(3, 2)), jnp.asarray(values(2, seed=1))
    check_grads(jax.jit(function) if jit else function, (x, y), order=1, modes=["rev"])


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_jax_complex(jit):
    function = ferry.via("torch", grad=True)(lambda z: (torch.exp(z) * z.conj()).abs().sum())
    native = lambda z: jnp.abs(jnp.exp(z) * z.conj()).sum()  # noqa: E731
    z = jnp.asarray(values(3) + 1j * values(3, seed=1))
    slope = jax.grad(function)
    assert np.allclose((jax.jit(slope) if jit else slope)(z), jax.grad(native)(z))


@pytest.mark.parametrize("body", ["torch", "tensorflow"])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_jax_integers_and_unused(body, jit):
    gather = (lambda x, n: x[n]) if body == "torch" else tf.gather

    @ferry.via(body, grad=True)
    def function(x, rows, unused):
        return gather(x, rows) * 2, rows + 1

    def loss(x, unused, rows):
        picked, more = function(x, rows, unused)
        return picked.sum() + more.sum()

    slope = jax.grad(loss, (0, 1))
    x = jnp.asarray(values(4))
    one, other = (jax.jit(slope) if jit else slope)(x, x, jnp.asarray([0, 2]))
    assert one.tolist() == [2, 0, 2, 0]
    assert other.tolist() == [0, 0, 0, 0]


def test_jax_numbers_vmap_and_large():
    function = ferry.via("torch", grad=True)(lambda x: torch.sin(x))
    assert np.isclose(jax.grad(function)(0.5), np.cos(0.5))
    x = jnp.asarray(values(5))
    assert np.allclose(jax.vmap(jax.grad(function))(x), jnp.cos(x))
    assert np.allclose(jax.vmap(function)(x), jnp.sin(x))
    # JAX calls back on a thread of its own for large arrays, where 64-bit types that were turned on
    # for this thread alone are off, and it narrows them itself.
    large = jnp.ones((1000, 1000), jnp.float32)
    slope = jax.jit(jax.grad(lambda x: function(x).sum()))(large)
    assert np.allclose(slope, np.cos(1.0))


def test_jax_second_derivatives_raise():
    function = ferry.via("torch", grad=True)(lambda x: torch.sin(x).sum())
    with pytest.raises((ValueError, TypeError), match=r"JVP|jvp|custom_vjp"):
        jax.grad(lambda x: jax.grad(function)(x).sum())(jnp.ones(3))
    with pytest.raises((ValueError, TypeError), match=r"JVP|jvp|custom_vjp"):
        jax.jvp(function, (jnp.ones(3),), (jnp.ones(3),))


def test_jax_jit_of_a_torch_module():
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    function = ferry.via("torch", grad=True)(lambda x: layer(x))
    x = jnp.asarray(values(4, 3))
    slope = jax.jit(jax.grad(lambda x: function(x).sum()))(x)
    assert np.allclose(slope, np.broadcast_to(layer.weight.detach().sum(0).numpy(), (4, 3)))
    assert layer.weight.grad is None, "gradients are for arguments"


def test_jax_shapes_that_depend_on_values():
    function = ferry.via("torch", grad=True)(lambda x: x[x > 0])
    x = jnp.asarray([1.0, -1.0, 2.0])
    assert jax.grad(lambda x: function(x).sum())(x).tolist() == [1, 0, 1]
    with pytest.raises(ferry.InvalidArgumentError, match=r"\bjit\b"):
        jax.jit(function)(x)


def test_the_bodys_errors_are_its_own_under_jit():
    function = ferry.via("torch", grad=True)(lambda x: x / (1 // 0))
    with pytest.raises(ZeroDivisionError):
        jax.jit(function)(jnp.ones(3))


def test_jax_types_that_it_lacks():
    function = ferry.via("torch", grad=True)(lambda x: x.double())
    with x64(False), pytest.raises(ferry.UnsupportedDTypeError, match="x64"):
        jax.jit(function)(jnp.ones(3))


# From TensorFlow.


@pytest.mark.parametrize("body", ["torch", "jax"])
def test_tensorflow_against_numerical_gradients(body):
    x, y = tf.constant(values(3, 2)), tf.constant(values(2, seed=1))
    function = bent(body)
    for part in (lambda x, y: function(x, [y])[0], lambda x, y: function(x, [y])[1]["tanh"]):
        theory, numeric = tf.test.compute_gradient(part, [x, y])
        for one, other in zip(theory, numeric, strict=True):
            assert np.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("body", ["torch", "jax"])
def test_tensorflow_complex(body):
    exp = MODULES[body].exp
    function = ferry.via(body, grad=True)(lambda z: exp(z) * z.conj())
    z = tf.constant(values(3) + 1j * values(3, seed=1))

    def slope(function):
        with tf.GradientTape() as tape:
            tape.watch(z)
            y = tf.reduce_sum(tf.abs(function(z)))
        return tape.gradient(y, z)

    assert np.allclose(slope(function), slope(lambda z: tf.exp(z) * tf.math.conj(z)))


def test_tensorflow_variables_integers_and_unused():
    function = ferry.via("torch", grad=True)(lambda x, n, unused: (x[n] * 2, n + 1))
    x, unused = tf.Variable(values(4)), tf.constant(values(2))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(unused)
        y, more = function(x, tf.constant([0, 2]), unused)
    assert more.numpy().tolist() == [1, 3]
    for _ in range(2):
        assert tape.gradient(y, x).numpy().tolist() == [2, 0, 2, 0]
    assert not np.any(tape.gradient(y, unused))


def test_tensorflow_second_derivatives_raise():
    function = ferry.via("torch", grad=True)(lambda x: torch.sin(x))
    x = tf.constant(values(3))
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = function(x)
        slope = inner.gradient(y, x)
    assert np.allclose(slope, tf.cos(x))
    refused(lambda: outer.gradient(slope, x), "second")


def test_tensorflow_graphs_are_refused():
    function = ferry.via("torch", grad=True)(lambda x: x)
    with pytest.raises(ferry.NotATensorError, match="symbolic"):
        tf.function(function, autograph=False)(tf.ones(2))


# For all.


@pytest.mark.parametrize("framework", SMOOTH)
def test_there_is_no_border_within_a_framework(framework):
    function = bent(framework)
    x = ferry.to(values(2), framework, copy=True)
    if framework == "torch":
        x.requires_grad_()
        (first,) = torch.autograd.grad(function(x, [x])[0].sum(), x, create_graph=True)
        assert first.requires_grad, "second derivatives are the framework's own"
    elif framework == "jax":
        assert jax.hessian(lambda x: function(x, [x])[0].sum())(x).shape == (2, 2)
    else:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x, [x])[0]
        assert tape.gradient(y, x).shape == (2,)


@pytest.mark.parametrize("framework", ["numpy", "cupy", "paddle", "mlx"])
def test_frameworks_without_are_refused_when_decorated(framework):
    refused(lambda: ferry.via(framework, grad=True), framework, "grad=True")


def test_other_refusals():
    refused(lambda: ferry.via("jax", grad=True, returns="numpy"), "returns=")

    async def delayed(x):
        return x

    refused(lambda: ferry.via("jax", grad=True)(delayed), "async")
    function = ferry.via("jax", grad=True)(lambda x, y: x)
    torch_x = torch.ones(2, requires_grad=True)
    refused(lambda: function(tf.ones(2), torch_x), "requires grad", "tensorflow")

    class Box:
        def __init__(self, x):
            self.x = x

    ferry.register_container(Box, lambda box: ([box.x], None), lambda _, new: Box(new[0]))
    refused(lambda: function(Box(torch_x), 1), "Box", "register")


def test_methods_and_signature():
    class Thing:
        scale = 3.0

        @ferry.via("jax", grad=True)
        def method(self, x):
            """Scales."""
            return x * self.scale

    x = torch.ones(2, requires_grad=True)
    Thing().method(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert Thing.method.__doc__ == "Scales."


def test_results_go_to_the_first_that_can_have_a_gradient():
    function = ferry.via("jax", grad=True)(lambda a, x: a * x)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    function(np.asarray([1.0, 2.0, 3.0]), x).sum().backward()
    assert x.grad.tolist() == [1, 2, 3]


def test_one_border_within_another():
    inner = ferry.via("torch", grad=True)(lambda x: torch.sin(x))
    outer = ferry.via("jax", grad=True)(lambda x: inner(x) * 2)
    x = torch.from_numpy(values(3)).requires_grad_()
    assert torch.autograd.gradcheck(outer, (x,))


def test_a_result_that_is_an_argument():
    x = torch.ones(64, requires_grad=True)
    one, other = ferry.via("jax", grad=True)(lambda x: (x, x))(x)
    (one + 2 * other).sum().backward()
    assert x.grad[0] == 3
    function = ferry.via("torch", grad=True)(lambda x: [x, x])
    assert jax.grad(lambda x: function(x)[1].sum())(jnp.ones(2)).tolist() == [1, 1]


def test_threads():
    function = ferry.via("jax", grad=True)(lambda x: jnp.sin(x).sum())

    def work(number):
        x = torch.full((8,), float(number), dtype=torch.float32, requires_grad=True)
        function(x).backward()
        return torch.allclose(x.grad, torch.cos(x))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_the_bodys_errors_are_its_own():
    @ferry.via("jax", grad=True)
    def function(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        function(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_gradient_that_would_be_lost_is_an_error(framework):
    function = ferry.via(framework, grad=True)(lambda x, y: x * y)
    x, y = jnp.ones(2), torch.ones(2, dtype=torch.float64, requires_grad=True)
    refused(lambda: function(x, y), "requires grad", "jax")
    with torch.no_grad():
        assert function(x, y).tolist() == [1, 1]
    if framework != "torch":
        refused(lambda: function(torch.eye(2).to_sparse().requires_grad_(), y), "sparse", "detach")


def test_traced_values_of_others_do_not_reach_the_body():
    function = ferry.via("torch", grad=True)(lambda x, y: x * y)
    refused(
        lambda: jax.grad(lambda y: function(torch.ones(2), y).sum())(jnp.ones(2)),
        "jax",
        "torch",
    )
    for body in ("torch", "jax"):
        sine = ferry.via(body, grad=True)(lambda x, body=body: MODULES[body].sin(x))
        with pytest.raises(ferry.NotATensorError, match="symbolic"):
            tf.function(sine, autograph=False)(tf.ones(2))


SPARSE = {
    "scipy": lambda dense: scipy.sparse.csr_array(dense),
    "torch": lambda dense: torch.from_numpy(dense).to_sparse_csr(),
    "jax": lambda dense: jax_sparse.BCOO.fromdense(jnp.asarray(dense)),
    "tensorflow": tf.sparse.from_dense,
    "sparse": lambda dense: sparse.COO.from_numpy(dense),
}


@pytest.mark.parametrize("body", ["torch", "jax"])
@pytest.mark.parametrize("whose", SPARSE)
def test_sparse_arguments_are_carried(whose, body):
    """They are no part of what is differentiated, and come first or last alike."""
    matrix = values(3, 3)
    m = SPARSE[whose](matrix)
    product = ferry.via(body, grad=True)(lambda *, x, m: (m @ x).sum())
    expected = matrix.sum(0)
    x = torch.from_numpy(values(3)).requires_grad_()
    product(x=x, m=m).backward()
    assert np.allclose(x.grad, expected)
    gradient = jax.grad(lambda x: ferry.via(body, grad=True)(lambda m, x: (m @ x).sum())(m, x))
    assert np.allclose(gradient(jnp.ones(3)), expected)
    assert np.allclose(jax.jit(gradient)(jnp.ones(3)), expected)
    variable = tf.Variable(values(3))
    with tf.GradientTape() as tape:
        y = product(m=m, x=variable)
    assert np.allclose(tape.gradient(y, variable), expected)
