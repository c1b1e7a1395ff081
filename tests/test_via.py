"""`@ferry.via`: the body sees one framework, callers pass and get back their own."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import threading
import traceback
import typing

import jax
import jax.numpy as jnp
import ml_dtypes
import mlx.core as mx
import numpy as np
import paddle
import pytest
import scipy.sparse
import sparse
import tensorflow as tf
import torch
from jax.experimental import sparse as jax_sparse
from support import subprocesses
from support.tensors_of_callers import CONVERTED, KINDS, is_faster, is_tensor, refused, tensor

import tensorferry as ferry


@pytest.mark.parametrize("body", KINDS)
@pytest.mark.parametrize("caller", KINDS)
def test_every_pair(caller, body):
    @ferry.via(body)
    def both(x, *more, scale=None):
        assert all(isinstance(t, KINDS[body]) for t in (x, *more, scale))
        return x, {"more": list(more), "scale": scale, "n": 3}

    x, rest = both(tensor(caller), tensor("torch", 1), scale=tensor("numpy", 2))
    assert is_tensor(x, caller)
    assert is_tensor(rest["more"][0], caller, 1)
    assert is_tensor(rest["scale"], caller, 2)
    assert rest["n"] == 3


@pytest.mark.parametrize("body", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("name", CONVERTED)
def test_objects_of_other_libraries_give_numpy(name, body):
    @ferry.via(body)
    def negated(x, more=None):
        assert is_tensor(x, body)
        return {"x": -1 * x, "more": more}

    for _ in range(2):  # what is known of a type afterwards changes nothing
        result = negated([CONVERTED[name]()][0], more=[tensor("torch", 1)])
        assert type(result["x"]) is np.ndarray
        assert result["x"].tolist() == [0, -1, -2]
        assert is_tensor(result["more"][0], "numpy", 1)
    assert is_tensor(negated(tensor("torch"), CONVERTED[name]())["more"], "torch")
    inside = ferry.via(body)(lambda box: box)({"k": [CONVERTED[name]()]})
    assert is_tensor(inside["k"][0], "numpy")


@pytest.mark.parametrize("name", CONVERTED)
def test_objects_of_other_libraries_beside_traced_values(name):
    traced = jax.jit(lambda x: ferry.via("jax")(lambda a, b: a + b)(x, CONVERTED[name]()))
    assert traced(tensor("jax")).tolist() == [0, 2, 4]


@pytest.mark.parametrize("name", ["np", np, "pytorch", torch, jnp, "tf", mx])
def test_frameworks_by_any_name(name):
    seen = ferry.via(name, returns="keep")(lambda x: x)(tensor("paddle"))
    assert type(seen) is type(ferry.to(tensor("paddle"), name))


class Point(typing.NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Batch:
    name: str
    images: object


def test_containers_and_what_is_no_tensor():
    class Other:
        pass

    other = Other()

    @ferry.via("torch")
    def body(a, b, c, *rest, **named):
        assert is_tensor(a["k"][0], "torch")
        assert is_tensor(b.x, "torch", 1)
        assert is_tensor(c.images, "torch", 2)
        assert rest == (None, "text", 1.5, other)
        assert rest[3] is other
        assert is_tensor(named["z"][0], "torch", 3)
        return [a, b, c, named["z"], other]

    a, b, c, z, same = body(
        {"k": [tensor("jax")]},
        Point(tensor("numpy", 1), 7),
        Batch("one", tensor("tensorflow", 2)),
        None,
        "text",
        1.5,
        other,
        z=collections.deque([tensor("numpy", 3)]),
    )
    assert is_tensor(a["k"][0], "jax")
    assert type(b) is Point
    assert is_tensor(b.x, "jax", 1)
    assert is_tensor(c.images, "jax", 2)
    assert type(z) is collections.deque
    assert is_tensor(z[0], "jax", 3)
    assert same is other


def test_one_object_twice_is_one_in_the_body():
    x = tensor("numpy")
    assert ferry.via("torch")(lambda a, b: a is b)(x, b=x)


def test_registered_trees():
    class Box:
        def __init__(self, x):
            self.x = x

    ferry.register_container(Box, lambda box: ([box.x], None), lambda _, new: Box(new[0]))
    box = ferry.via("torch")(lambda box: Box(box.x.mul(1)))(Box(tensor("jax")))
    assert is_tensor(box.x, "jax")


# Where results go.


def test_the_origin_is_the_first_tensor_of_the_signature():
    @ferry.via("numpy")
    def body(n, a=None, b=None, *, c=None, **more):
        return np.arange(3, dtype=np.float32)

    t, j, f = tensor("torch"), tensor("jax"), tensor("tensorflow")
    assert is_tensor(body(1, [["x"], {"k": t}], j), "torch"), "depth first"
    assert is_tensor(body(1, b=j, a=t), "torch"), "the order of the signature"
    assert is_tensor(body(1, c=f, b=j), "jax")
    assert is_tensor(body(1, extra=j, c=f), "tensorflow")
    assert is_tensor(body(1, extra=j, other=f), "jax")
    assert is_tensor(body(1, Batch("x", j), t), "jax")
    assert is_tensor(body(1, bytearray(4), t), "numpy"), "a buffer counts as NumPy's"


def test_without_a_tensor_results_stay():
    made = torch.ones(2)
    assert ferry.via("torch")(lambda n: made)(3) is made
    assert isinstance(ferry.via("numpy")(lambda n: made)(b"text"), torch.Tensor)


def test_returns():
    x = tensor("numpy")

    def body(x):
        return {"y": x * 2}

    def given(returns, x=x):
        return ferry.via("torch", returns=returns)(body)(x)["y"]

    assert isinstance(given("same"), np.ndarray)
    assert isinstance(given(None), torch.Tensor)
    assert isinstance(given("keep"), torch.Tensor)
    assert isinstance(given("jax"), jax.Array)
    assert isinstance(given(tf), tf.Tensor)
    half = given({"framework": "same", "dtype": "float16"})
    assert half.dtype == np.float16
    half = given({"dtype": "float16"}, tensor("jax"))
    assert isinstance(half, jax.Array)
    assert half.dtype == jnp.float16
    assert isinstance(given({"framework": "paddle", "device": "cpu"}), paddle.Tensor)


def test_returns_that_mean_nothing():
    refused(lambda: ferry.via("torch", returns={"dtyp": "float32"}), "'dtyp'", "dtype")
    refused(lambda: ferry.via("torch", returns="nothing"), "unknown framework", '"nothing"')
    refused(lambda: ferry.via("torch", returns=3), "returns=3")
    refused(lambda: ferry.via("torch", returns={"framework": "keep", "dtype": "int8"}), "keep")


@pytest.mark.parametrize("value", [None, 3, "x", [], (1, 2)])
def test_results_that_are_no_tensors(value):
    assert ferry.via("torch")(lambda x: value)(tensor("numpy")) == value


SCALARS = [
    *(np.float64(0.5), np.float32(1.5), np.float16(2), np.int64(-3), np.uint8(4), np.bool_(True)),
    *(np.complex64(1 + 2j), ml_dtypes.bfloat16(3), ml_dtypes.float8_e4m3fn(0.5)),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: type(scalar).__name__)
@pytest.mark.parametrize("caller", KINDS)
def test_numpy_scalars_of_a_result_are_tensors(caller, scalar):
    x = tensor(caller)
    try:
        expected = ferry.to(np.asarray(scalar), caller)
    except ferry.UnsupportedDTypeError:
        # Refused as an array of this type is.
        for given in (scalar, [scalar]):
            with pytest.raises(
                ferry.UnsupportedDTypeError, match=r"the result of .*\nhint: write returns="
            ):
                ferry.via("numpy")(lambda _, y=given: y)(x)
        return
    found = ferry.via("numpy")(lambda _: scalar)(x)
    if caller == "numpy":
        assert found is scalar
        return
    pair, tree = ferry.via("numpy")(lambda _: ((scalar, 2.5), {"a": [scalar, None, "x"]}))(x)
    assert (pair[1], tree["a"][1:]) == (2.5, [None, "x"])
    for one in (
        found,
        pair[0],
        tree["a"][0],
        ferry.via("numpy", returns=caller)(lambda _: scalar)(0),
    ):
        assert type(one) is type(expected)
        assert (one.dtype, tuple(one.shape)) == (expected.dtype, ())
        assert ferry.to(one, "numpy").tobytes() == scalar.tobytes()


OTHER_SCALARS = [np.str_("a"), np.bytes_(b"a"), np.datetime64("2020-01-01"), np.timedelta64(3, "s")]
OTHER_SCALARS += [np.zeros(1, "i4,f4")[0], np.longdouble(2)]


@pytest.mark.parametrize("scalar", OTHER_SCALARS, ids=lambda scalar: type(scalar).__name__)
def test_numpy_scalars_of_other_types_pass(scalar):
    x = torch.ones(2)
    assert ferry.via("numpy")(lambda _: scalar)(x) is scalar
    found = ferry.via("numpy")(lambda x: {"x": x, "s": (scalar, x.mean())})(x)
    assert found["s"][0] is scalar
    assert torch.equal(found["s"][1], torch.tensor(1.0))


def test_numpy_scalars_with_options_and_as_arguments():
    half = ferry.via("numpy", returns={"framework": "same", "dtype": "float16"})(lambda x: x.sum())
    for x in (torch.ones(3), np.ones(3)):
        found = half(x)
        assert type(found) is type(x)
        assert (str(found.dtype).removeprefix("torch."), found.item()) == ("float16", 3)
    assert type(ferry.via("numpy", returns="keep")(np.sum)(torch.ones(3))) is np.float32
    # Arguments pass, and without a tensor among them so do results. Other bodies return numbers.
    assert ferry.via("numpy")(lambda x, n: type(n))(torch.ones(1), np.int8(3)) is np.int8
    assert type(ferry.via("numpy")(lambda n: n + n)(np.int8(3))) is np.int8
    assert type(ferry.via("torch")(lambda x: np.int8(3))(np.ones(1))) is np.int8
    assert type(ferry.via("torch")(lambda x: np.int8(3))(jnp.ones(1))) is np.int8

    @ferry.via("numpy")
    async def mean(x):
        return x.mean()

    assert torch.equal(asyncio.run(mean(torch.ones(3))), torch.tensor(1.0))


@pytest.mark.parametrize("caller", ["torch", "jax", "tensorflow"])
def test_numpy_scalars_of_a_function_for_sparse_tensors(caller):
    x = SPARSE[caller](np.diag(np.float32([1, 2, 3])))
    found = ferry.via("scipy")(lambda matrix: matrix.sum())(x)
    assert type(found) is type(ferry.to(np.float32(0), caller))
    assert float(found) == 6


# Wishes for the way in.


def test_options():
    x = tensor("numpy")

    def body(x):
        assert x.dtype == torch.float64
        assert x.device.type == "cpu"
        return x

    result = ferry.via("torch", dtype="float64", device="cpu")(body)(x)
    assert result.dtype == np.float64
    with pytest.raises(ferry.CopyRequiredError):
        ferry.via("tensorflow", copy=False)(lambda x: x)(np.ones((4, 4), "f4")[:, ::2])


def test_the_body_shares_the_callers_memory_unless_it_copies():
    def body(x):
        x += 1
        return x

    x = tensor("numpy")
    assert is_tensor(ferry.via("torch")(body)(x), "numpy", 1)
    assert is_tensor(x, "numpy", 1)
    assert is_tensor(ferry.via("torch", copy=True)(body)(x), "numpy", 2)
    assert is_tensor(x, "numpy", 1)


def test_the_same_framework_gives_the_same_objects():
    x = torch.ones(3, requires_grad=True) * 2
    assert ferry.via("torch")(lambda x: x)(x) is x


# Every kind of callable.


def test_decoration_imports_no_framework():
    subprocesses.run_program("front/imports_on_demand.py", "decorator")


# What goes wrong.


def test_the_bodys_errors_are_its_own():
    @ferry.via("torch")
    def body(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        body(tensor("numpy"))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "body"


def test_what_cannot_be_carried_says_where():
    with pytest.raises(ferry.UnsupportedDTypeError, match="hint"):
        ferry.via("jax")(lambda x: x)(np.arange(3, dtype=np.int64))


# Threads, tracing, cost.


def test_threads():
    workers = 8
    barrier = threading.Barrier(workers)

    @ferry.via("torch")
    def body(x):
        # Eight calls are inside the body at once, each time.
        barrier.wait(subprocesses.HANG_SECONDS)
        return x + 1

    def work(number):
        name = list(KINDS)[number % len(KINDS)]
        return is_tensor(body(tensor(name, number)), name, number + 1)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        assert all(pool.map(work, range(15 * workers)))


def test_inside_jit_of_the_same_framework():
    @ferry.via("jax")
    def body(x, y):
        return jnp.sin(x["k"]) * y

    y = tensor("torch")
    expected = np.sin(1.0) * np.arange(3)
    assert np.allclose(jax.jit(lambda x: body({"k": x}, y))(jnp.ones(3)), expected)
    assert np.allclose(jax.grad(lambda x: body({"k": x}, y).sum())(1.0), np.cos(1.0) * 3)
    f = tf.function(lambda x: ferry.via("tensorflow")(lambda x: x + 1)(x))
    assert is_tensor(f(tensor("tensorflow")), "tensorflow", 1)


def test_inside_torch_func():
    double = ferry.via("torch")(lambda x, *, scale=2: x * scale)
    rows = torch.ones(2, 3)
    assert torch.func.vmap(double)(rows).equal(rows * 2)
    assert torch.func.vmap(lambda x: double([x][0], scale=x))(rows).equal(rows)
    with pytest.raises(ferry.NotATensorError, match=r"torch\.func"):
        torch.func.vmap(ferry.via("numpy")(lambda x: x))(rows)


def test_variables_in_a_graph_are_read_there():
    variable = tf.Variable([1.0, 2.0])
    call = tf.function(
        lambda: ferry.via("tensorflow")(lambda x, y: x * y)(variable, 2.0), autograph=False
    )
    assert call().numpy().tolist() == [2, 4]
    variable.assign([3.0, 4.0])
    assert call().numpy().tolist() == [6, 8]


@dataclasses.dataclass
class Box:
    part: object


SPARSE = {
    "csr_array": scipy.sparse.csr_array,
    "torch": lambda dense: torch.from_numpy(dense).to_sparse_csr(),
    "jax": lambda dense: jax_sparse.BCOO.fromdense(jnp.asarray(dense)),
    "tensorflow": tf.sparse.from_dense,
    "sparse": sparse.COO.from_numpy,
}


@pytest.mark.parametrize("caller", SPARSE)
@pytest.mark.parametrize("body", ["torch", "scipy"])
def test_sparse_tensors_come_back(body, caller):
    x = SPARSE[caller](np.diag(np.float32([1, 2, 3])))
    dense = {"torch": torch.Tensor, "jax": jax.Array, "tensorflow": tf.Tensor}

    @ferry.via(body)
    def function(tree):
        part = tree.part if isinstance(tree, Box) else tree[0]
        assert isinstance(part, torch.Tensor if body == "torch" else scipy.sparse.sparray)
        whole = part.to_dense() if body == "torch" else part.toarray()
        return {"sparse": part, "whole": whole, "name": "x"}

    for tree in ([x], Box(x)):
        result = function(tree)
        assert type(result["sparse"]) is type(x)
        assert isinstance(result["whole"], dense.get(caller, np.ndarray))
        assert ferry.to(result["whole"], "numpy").tolist() == np.diag([1, 2, 3]).tolist()
        assert result["name"] == "x"


def test_functions_for_sparse_tensors_take_and_give_numbers():
    assert ferry.via("scipy")(lambda n: n)(3) == 3
    assert ferry.via("numpy", returns="scipy")(lambda n: 2.5)(3) == 2.5


def test_inside_jit_of_another_framework():
    body = ferry.via("torch")(lambda x: x)
    with pytest.raises(ferry.NotATensorError, match="tracer"):
        jax.jit(body)(jnp.ones(3))


def test_the_cost_of_a_call():
    # The bench has the figures; this notices when something slow comes in.
    def body(x):
        return x

    decorated, x = ferry.via("torch")(body), tensor("numpy")

    def by_hand():
        return ferry.to(body(ferry.to(x, "torch")), "numpy")

    decorated(x)
    # By hand takes two calls.
    assert is_faster(lambda: decorated(x), 8, by_hand)
