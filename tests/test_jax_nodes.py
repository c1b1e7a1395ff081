"""Objects whose types JAX's registry knows are nodes, whatever array protocols they have."""

from __future__ import annotations

import dataclasses

import array_api_compat
import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
import torch
from flax import linen, nnx
from jax.experimental import sparse as jax_sparse
from support.followed_hints import follow
from support.refusals import refused

import tensorferry as ferry
from tensorferry import pickling


@jax.tree_util.register_pytree_node_class
class Described:
    """Values with a unit, which NumPy may read."""

    def __init__(self, values, unit):
        self.values, self.unit = values, unit

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def tree_flatten(self):
        return (self.values,), self.unit

    @classmethod
    def tree_unflatten(cls, unit, children):
        return cls(*children, unit)


def is_described(result, kind) -> bool:
    return (type(result), type(result.values), result.unit) == (Described, kind, "m")


def test_a_node_with_an_array_method():
    source = Described(np.arange(3.0), "m")
    assert is_described(ferry.to(source, "torch"), torch.Tensor)
    assert is_described(ferry.to({"a": [source]}, "torch")["a"][0], torch.Tensor)
    assert is_described(ferry.to(source, "torch", copy=True), torch.Tensor)
    assert is_described(ferry.to_async([source], "torch").result()[0], torch.Tensor)
    assert is_described(next(iter(ferry.feed([source], "torch"))), torch.Tensor)
    seen = []
    result = ferry.via("torch")(lambda x: seen.append(x) or x)(source)
    assert is_described(seen[0], torch.Tensor)
    assert is_described(result, np.ndarray)
    plan = ferry.plan({"a": source}, "torch")
    assert [part.name for part in plan.parts] == ["['a'][0]"]
    assert is_described(pickling.loads(*pickling.dumps(source)), np.ndarray)
    for x in (source, [source]):
        error = refused(ferry.InvalidArgumentError, ValueError, lambda x=x: ferry.publish(x))
        assert "Described" in str(error)
    refused(ferry.NotATensorError, TypeError, lambda: ferry.arrow.export(source))
    for to in (ferry.to, ferry.to_async):
        refused(
            ferry.InvalidArgumentError, ValueError, lambda t=to: t(source, "numpy", out=np.empty(3))
        )


def test_a_type_that_is_registered_after_it_was_converted():
    class Late:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.values, dtype)

    source = Late(np.arange(3.0))
    assert type(ferry.to(source, "torch")) is torch.Tensor
    jax.tree_util.register_pytree_node(
        Late, lambda x: ((x.values,), None), lambda _, children: Late(*children)
    )
    assert type(ferry.to(source, "torch").values) is torch.Tensor


def test_a_sparse_array_is_a_tensor():
    matrix = jax_sparse.BCOO.fromdense(jnp.eye(3))
    assert ferry.to({"a": matrix}, "torch")["a"].layout is torch.sparse_coo
    assert ferry.plan(matrix, "torch").kind == "sparse"


class Model(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(2, 4, rngs=rngs), nnx.Linear(4, 1, rngs=rngs)])
        self.scale = nnx.Param(jnp.ones(()))

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale[...]


def leaves(node) -> list:
    return jax.tree_util.tree_leaves(node)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_module_of_nnx_arrives_complete_and_is_trained(framework):
    module = Model(nnx.Rngs(0))
    there = ferry.to(module, framework)
    kind = torch.Tensor if framework == "torch" else np.ndarray
    assert {type(leaf) for leaf in leaves(there)} == {kind}
    back = ferry.to(there, "jax")
    state = nnx.state(back, nnx.Param)
    assert jax.tree_util.tree_structure(state) == jax.tree_util.tree_structure(
        nnx.state(module, nnx.Param)
    )
    assert all(map(np.array_equal, leaves(state), leaves(nnx.state(module))))
    optimizer = nnx.Optimizer(back, optax.sgd(0.1), wrt=nnx.Param)
    gradients = nnx.grad(lambda model: (model(jnp.ones((1, 2))) ** 2).sum())(back)
    optimizer.update(back, gradients)
    changed = map(np.array_equal, leaves(nnx.state(back)), leaves(nnx.state(module)))
    assert not any(changed)


def test_a_state_and_a_param_of_nnx():
    module = Model(nnx.Rngs(0))
    graph, state = nnx.split(module)
    there = ferry.to(state, "torch")
    assert type(there) is nnx.State
    plan = ferry.plan(state, "torch")
    assert "['layers'][0]['kernel'].value" in [part.name for part in plan.parts]
    back = ferry.to(there, "jax")
    assert jax.tree_util.tree_structure(back) == jax.tree_util.tree_structure(state)
    merged = nnx.merge(graph, back)
    assert np.array_equal(merged(jnp.ones((1, 2))), module(jnp.ones((1, 2))))
    param = ferry.to(there["scale"], "jax", dtype="float16")
    assert (type(param), param.dtype) == (nnx.Param, jnp.float16)
    assert type(ferry.to([there["scale"]], "numpy")[0]) is nnx.Param


@pytest.mark.parametrize("framework", ["numpy", "jax", "torch"])
def test_a_param_where_a_tensor_is_needed(framework, tmp_path):
    """It was read through its `__dlpack__`, which hands on that of its value."""
    values = [0.0, 1.0, 2.0]
    param = nnx.Param(ferry.to(np.array(values, np.float32), framework))
    ferry.save(tmp_path / "x.npy", param)
    assert ferry.load(tmp_path / "x.npy").tolist() == values
    ferry.save(tmp_path / "x.safetensors", {"p": param, "s": nnx.State({"b": [param]})})
    saved = ferry.load(tmp_path / "x.safetensors", nested=True)
    assert (saved["p"].tolist(), saved["s"]["b"][0].tolist()) == (values, values)
    with ferry.publish({"p": param}) as ticket, ferry.publish(param) as alone:
        assert ferry.attach(ticket)["p"].tolist() == ferry.attach(alone).tolist() == values
    for copied in (
        ferry.to(param, "numpy", out=np.empty(3, np.float32)),
        ferry.to_async(param, "numpy", out=np.empty(3, np.float32)).result(),
    ):
        assert copied.tolist() == values
    assert pa.array(ferry.arrow.export(param)).to_pylist() == values
    assert ferry.arrow.export({"p": param}).plan.parts[0].source == framework
    space = array_api_compat.array_namespace(param.get_value())
    assert ferry.array_namespace(param, param.get_value()) is space
    assert ferry.agnostic(lambda xp, x: xp.sum(x.get_value()))(param) == 3
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.to(np.ones(3, np.float32), framework, out=param)
    statement = caught.value.hint.removeprefix("write ")
    exec(statement, {"ferry": ferry, "out": param, "x": np.ones(3, np.float32)})
    assert param.get_value().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nnx.Linear(3, 1, use_bias=False, rngs=nnx.Rngs(0)),
        lambda: nnx.Param({"kernel": jnp.ones((3, 1))}),
        lambda: linen.Partitioned({"kernel": jnp.ones((3, 1))}, names=(None,)),
    ],
)
def test_hints_for_nodes_of_flax_work(make, tmp_path):
    node = make()
    for call in (lambda x: ferry.save(tmp_path / "x.npz", x), ferry.publish):
        for x in (node, {"a": node}):
            error = refused(ferry.InvalidArgumentError, ValueError, lambda x=x, c=call: c(x))
            tree = follow(error, x=node, flax=flax)
            call(tree)
            assert ferry.to(tree, "numpy")["kernel"].shape == (3, 1)
    state = nnx.State({"kernel": nnx.Param(jnp.ones((3, 1)))})
    error = refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.publish(state))
    ferry.publish(follow(error, x=state, flax=flax))


def test_a_module_of_nnx_that_is_a_dataclass():
    @dataclasses.dataclass
    class Block(nnx.Module):
        features: int

        def __post_init__(self):
            self.linear = nnx.Linear(self.features, 1, rngs=nnx.Rngs(0))

    there = ferry.to(Block(3), "torch")
    assert {type(leaf) for leaf in leaves(there)} == {torch.Tensor}
    names = [part.name for part in ferry.plan(there, "jax").parts]
    assert names == [".linear.bias.value", ".linear.kernel.value"]


def test_boxes_of_linen():
    class Boxed(linen.Module):
        @linen.compact
        def __call__(self, x):
            start = linen.with_partitioning(linen.initializers.ones, ("in", None))
            return linen.Dense(2, kernel_init=start)(x)

    variables = Boxed().init(jax.random.key(0), jnp.ones((1, 3)))
    there = ferry.to(variables, "torch")
    box = there["params"]["Dense_0"]["kernel"]
    assert (type(box), type(box.value), box.names) == (
        linen.Partitioned,
        torch.Tensor,
        ("in", None),
    )
    back = ferry.to(there, "jax")
    assert jax.tree_util.tree_structure(back) == jax.tree_util.tree_structure(variables)


def test_states_of_optax():
    parameters = {"w": jnp.ones(3)}
    optimizer = optax.adam(1e-3)
    state = optimizer.init(parameters)
    there = ferry.to(state, "numpy")
    assert {type(leaf) for leaf in leaves(there)} == {np.ndarray}
    back = ferry.to(there, "jax")
    assert jax.tree_util.tree_structure(back) == jax.tree_util.tree_structure(state)
    updates, _ = optimizer.update(parameters, back, parameters)
    assert not np.array_equal(updates["w"], parameters["w"])


def test_gradients_flow_through_a_node():
    """`via(..., grad=True)` has a traversal of its own, which knows the same nodes."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Scaled:
        values: object
        note: object = dataclasses.field(metadata={"static": True}, default="kept")

    @ferry.via("jax", grad=True)
    def total(x):
        return (x.values**2).sum()

    x = torch.ones(3, requires_grad=True)
    total(Scaled(x)).backward()
    assert x.grad.tolist() == [2, 2, 2]
