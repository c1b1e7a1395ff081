"""Tensors that have no plain memory are refused in words, whatever the target."""

from __future__ import annotations

import sys
import types

import jax
import jax.numpy as jnp
import ml_dtypes
import mlx.core as mx
import numpy as np
import paddle
import pytest
import scipy.sparse
import tensorflow as tf
from support import subprocesses
from support.refusals import check_words, refused, refused_everywhere

import tensorferry as ferry

NUMPY_TYPES = {
    "structured": np.zeros(3, [("a", "i4"), ("b", "f8")]),
    "record": np.zeros(3, [("a", "i4")]).view(np.recarray),
    "void": np.zeros(3, "V7"),
    "object": np.array([1, None], dtype=object),
    "bytes": np.array([b"a", b"bc"]),
    "unicode": np.array(["a", "bc"]),
    "string": np.array(["a", "bc"], dtype=np.dtypes.StringDType()),
    "datetime": np.array(["2026-01-01"], dtype="datetime64[s]"),
    "timedelta": np.zeros(3, "timedelta64[ms]"),
    "longdouble": np.zeros(3, np.longdouble),
    "clongdouble": np.zeros(3, np.clongdouble),
    "int2": np.zeros(3, ml_dtypes.int2),
    "empty object": np.zeros((0, 2), dtype=object),
    "0-d object": np.array(None, dtype=object),
}


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_numpy_types_without_numbers(name):
    error = refused_everywhere(ferry.UnsupportedDTypeError, TypeError, NUMPY_TYPES[name])
    assert str(NUMPY_TYPES[name].dtype) in str(error)


@pytest.mark.parametrize("scalar", [np.datetime64("2026-01-01"), np.str_("a"), np.longdouble(1)])
def test_numpy_scalars_without_numbers(scalar):
    refused(ferry.UnsupportedDTypeError, TypeError, lambda: ferry.to(scalar, "torch"))
    tree = [scalar, np.ones(2)]
    assert ferry.to(tree, "torch")[0] is scalar, "in a tree a scalar is a leaf"


@pytest.mark.parametrize(
    "array",
    [
        np.ma.array([1.0, 2.0], mask=[True, False]),
        np.ma.masked,
        np.ma.array([1.0], mask=[True]).view(type("Mine", (np.ma.MaskedArray,), {})),
    ],
    ids=["masked", "the constant", "subclass"],
)
def test_masked_arrays_keep_their_mask_by_being_refused(array):
    error = refused_everywhere(ferry.NotATensorError, TypeError, array)
    assert "mask" in str(error)


@pytest.mark.parametrize("form", ["dia", "dok", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_scipy_sparse_formats_that_nobody_else_has(form, kind):
    array = getattr(scipy.sparse, f"{form}_{kind}")(np.eye(4))
    with pytest.raises(ferry.FerryError, match=form) as caught:
        ferry.to(array, "torch")
    assert caught.value.hint


def in_transform(transform):
    """What `ferry.to` raises on the tensor that a transformed function gets."""
    seen = []

    def body(x):
        seen.append(refused(ferry.NotATensorError, TypeError, lambda: ferry.to(x, "numpy")))
        refused(ferry.NotATensorError, TypeError, lambda: ferry.plan(x, "torch"))
        assert ferry.to(x, "jax") is x
        refused(ferry.NotATensorError, TypeError, lambda: ferry.to([x], "tensorflow"))
        return x.sum()

    transform(body)
    return seen


JAX_TRANSFORMS = {
    "jit": lambda f: jax.jit(f)(jnp.ones(3)),
    "grad": lambda f: jax.grad(f)(jnp.ones(3)),
    "vmap": lambda f: jax.vmap(f)(jnp.ones((2, 3))),
    "jvp": lambda f: jax.jvp(f, (jnp.ones(3),), (jnp.ones(3),)),
    "eval_shape": lambda f: jax.eval_shape(f, jnp.ones(3)),
    "checkpoint": lambda f: jax.checkpoint(f)(jnp.ones(3)),
    "scan": lambda f: jax.lax.scan(lambda c, x: (c + f(x), c), 0.0, jnp.ones((2, 3))),
}


@pytest.mark.parametrize("name", JAX_TRANSFORMS)
def test_jax_tracers(name):
    assert in_transform(JAX_TRANSFORMS[name])


def test_jax_random_keys():
    for keys in (jax.random.key(0), jax.random.split(jax.random.key(0), 3)):
        error = refused_everywhere(ferry.NotATensorError, TypeError, keys, origin="jax")
        assert "key_data" in str(error)
    data = ferry.to(jax.random.key_data(jax.random.key(7)), "numpy")
    assert data.tolist() == [0, 7]


@pytest.mark.filterwarnings("ignore:an object of type jax.ShapeDtypeStruct:UserWarning")
def test_jax_shapes_are_no_tensors():
    refused_everywhere_but_trees(jax.ShapeDtypeStruct((2,), jnp.float32))


def refused_everywhere_but_trees(thing):
    """Things that are leaves in a tree, and no tensors when passed alone."""
    for target in ("numpy", "torch", "jax", "tensorflow"):
        refused(ferry.NotATensorError, TypeError, lambda target=target: ferry.to(thing, target))
    assert ferry.to([thing, np.ones(2)], "numpy")[0] is thing


def test_deleted_jax_arrays():
    x = jnp.arange(4.0)
    kept = ferry.to(x, "numpy")
    x.delete()
    error = refused_everywhere(ferry.NotATensorError, TypeError, x)
    assert "deleted" in str(error)
    assert kept.tolist() == [0, 1, 2, 3], "a share made before lives on"


def test_donated_jax_arrays():
    x = jnp.arange(1024.0)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x).block_until_ready()
    assert x.is_deleted(), "JAX took the donation"
    refused_everywhere(ferry.NotATensorError, TypeError, x)


def test_sharded_jax_arrays_are_gathered():
    flags = "--xla_force_host_platform_device_count=2"
    subprocesses.run_program("front/sharded_arrays.py", XLA_FLAGS=flags)


def tensorflow_values():
    yield "string", tf.constant("a")
    yield "strings", tf.constant([["a", "b"]])
    yield "no-strings", tf.zeros((0,), tf.string)
    yield "resource", tf.Variable(1.0).handle
    yield "variant", tf.data.experimental.to_variant(tf.data.Dataset.range(3))
    yield (
        "list",
        tf.raw_ops.EmptyTensorList(
            element_shape=tf.constant([2]), max_num_elements=4, element_dtype=tf.float32
        ),
    )
    yield "qint8", tf.quantization.quantize([1.0, 2.0], -2, 2, tf.qint8).output
    for dtype in (tf.quint8, tf.qint16, tf.quint16, tf.qint32):
        yield dtype.name, tf.bitcast(tf.zeros(4, getattr(tf, dtype.name.replace("q", ""))), dtype)


TENSORFLOW_TYPES = (
    *("string", "strings", "no-strings", "resource", "variant", "list"),
    *("qint8", "quint8", "qint16", "quint16", "qint32"),
)


@pytest.mark.parametrize("name", TENSORFLOW_TYPES)
def test_tensorflow_types_without_numbers(name):
    tensor = dict(tensorflow_values())[name]
    refused_everywhere(ferry.UnsupportedDTypeError, TypeError, tensor)


def test_tensorflow_composites():
    ragged = tf.ragged.constant([[1, 2], [3]])
    slices = tf.IndexedSlices(tf.ones((2, 3)), tf.constant([0, 2]))
    for tensor in (ragged, slices):
        refused_everywhere(ferry.NotATensorError, TypeError, tensor)


def test_tensorflow_string_variable():
    refused_everywhere(ferry.UnsupportedDTypeError, TypeError, tf.Variable(["a", "b"]))


@pytest.mark.parametrize("compiled", [False, True])
def test_tensorflow_symbols(compiled):
    seen = []
    variable = tf.Variable([1.0, 2.0])

    @tf.function(jit_compile=compiled)
    @tf.autograph.experimental.do_not_convert
    def body(x):
        for thing in (x, x + 1, variable):
            home = None if thing is variable else "tensorflow"
            seen.append(refused_everywhere(ferry.NotATensorError, TypeError, thing, home))
        return x

    body(tf.ones(3))
    assert len(seen) == 3


def test_tensorflow_graph_of_version_1():
    with tf.Graph().as_default():
        placeholder = tf.compat.v1.placeholder(tf.float32, (None, 3))
        constant = tf.constant([1.0, 2.0])
        resource = tf.compat.v1.get_variable("r", (2,), use_resource=True)
        reference = tf.compat.v1.get_variable("v", (2,), use_resource=False)
        for thing in (placeholder, constant):
            refused_everywhere(ferry.NotATensorError, TypeError, thing, origin="tensorflow")
        for thing in (resource, reference):
            refused_everywhere(ferry.NotATensorError, TypeError, thing)
        with tf.compat.v1.Session() as session:
            value = session.run(constant)
    assert ferry.to(value, "torch").tolist() == [1, 2]


def test_keras_symbols():
    keras = tf.keras
    refused(ferry.FerryError, Exception, lambda: ferry.to(keras.Input((3,)), "numpy"))


def test_paddle_sparse():
    coo = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (3, 3))
    csr = paddle.sparse.sparse_csr_tensor([0, 1, 2, 2], [1, 2], [1.0, 2.0], (3, 3))
    for tensor in (coo, csr):
        error = refused_everywhere(ferry.NotATensorError, TypeError, tensor)
        assert "sparse" in str(error)


def test_paddle_tensor_without_memory():
    """It says that it is empty; where Paddle lets it out, it is."""
    try:
        assert ferry.to(paddle.Tensor(), "numpy").shape == (0,)
    except ferry.FerryError as error:
        check_words(error)


def test_paddle_static_symbols():
    done = subprocesses.attempt_program("front/paddle_static_symbols.py")
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


@pytest.mark.parametrize("transform", ["compile", "vmap"])
def test_mlx_while_it_traces(transform):
    seen = []

    def body(x):
        seen.append(refused(ferry.FerryError, Exception, lambda: ferry.to(x, "numpy")))
        return x + 1

    mx.eval(getattr(mx, transform)(body)(mx.ones((2, 3))))
    assert seen


def test_names_alone_do_not_make_a_framework():
    """A class that only borrows the name of a refused one is like any other."""
    module = types.ModuleType("somebody.sparse")
    kind = type("SparseTensor", (), {"__module__": module.__name__})
    assert module.__name__ not in sys.modules
    error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to(kind(), "numpy"))
    assert "somebody.sparse.SparseTensor" in str(error)
