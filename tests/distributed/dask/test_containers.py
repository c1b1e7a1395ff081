"""Tensors inside of other objects, and tensors with something of their own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from support import dask_tasks
from support.dask_tasks import FRAMEWORKS, Batch

import tensorferry as ferry

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def seen_of(framework: str, values: np.ndarray) -> dask_tasks.Seen:
    return framework, values.dtype.name, values.shape, values.tobytes()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_fields_of_objects_travel_out_of_band(cluster: Any, framework: str) -> None:
    x = ferry.to(VALUES, framework, dtype="bfloat16")
    batch = Batch({"x": [x]}, x)
    from distributed.protocol import serialize

    header, frames = serialize(batch)
    assert (header["serializer"], len(frames)) == ("pickle", 2)
    there = cluster.call(dask_tasks.same, cluster.put(Batch(x, x)))
    expected = seen_of(framework, VALUES.astype(ml_dtypes.bfloat16))
    assert cluster.call(dask_tasks.see_batch, there).result() == (expected, expected)
    back = there.result()
    assert (dask_tasks.see(back.inputs), dask_tasks.see(back.labels)) == (expected, expected)


def test_nested_collections_travel(cluster: Any) -> None:
    tree = {"a": (torch.ones(2), [jnp.ones(2)]), 3: {"b": torch.ones(1, dtype=torch.bfloat16)}}
    back = cluster.call(dask_tasks.same, cluster.put(tree)).result()
    assert back.keys() == tree.keys()
    assert torch.equal(back["a"][0], torch.ones(2))
    assert isinstance(back["a"][1][0], type(jnp.ones(2)))
    assert back[3]["b"].dtype == torch.bfloat16


def test_objects_of_local_classes_travel_with_their_tensors(cluster: Any) -> None:
    """cloudpickle sends the class, and the tensors out of band."""

    class Local:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    from distributed.protocol import serialize

    x = Local(torch.arange(1000, dtype=torch.bfloat16))
    _, frames = serialize(x)
    assert [memoryview(frame).nbytes for frame in frames[1:]] == [2000]
    back = cluster.call(dask_tasks.same, cluster.put(x)).result()
    assert torch.equal(back.x, x.x)


def test_functions_with_tensors_in_their_closure_travel(cluster: Any) -> None:
    weights = torch.arange(3, dtype=torch.bfloat16)
    found = cluster.call(lambda factor: float((weights * factor).sum()), 2).result()
    assert found == 6


def test_tied_weights_of_a_state_dict_stay_tied(cluster: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, False), torch.nn.Linear(3, 3, False))
    model[1].weight = model[0].weight
    state = model.state_dict()
    assert cluster.call(dask_tasks.is_tied, cluster.put(state)).result()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modules_travel(cluster: Any, dtype: torch.dtype) -> None:
    model = torch.nn.Linear(3, 2, dtype=dtype)
    back = cluster.call(dask_tasks.same, cluster.put(model)).result()
    assert type(back) is torch.nn.Linear
    for name, parameter in model.named_parameters():
        assert type(back.get_parameter(name)) is torch.nn.Parameter
        assert torch.equal(back.get_parameter(name), parameter)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_travel_with_a_tensor(cluster: Any, dtype: torch.dtype) -> None:
    x = torch.ones(3, dtype=dtype, requires_grad=True)
    (2 * x).sum().backward()
    back = cluster.call(dask_tasks.same, cluster.put(x)).result()
    assert back.requires_grad
    assert torch.equal(back.grad, torch.full((3,), 2, dtype=dtype))


def test_a_row_travels_without_its_matrix(cluster: Any) -> None:
    from distributed.protocol import serialize

    matrix = torch.zeros(256, 1024)
    _, frames = serialize(matrix[3])
    assert sum(memoryview(frame).nbytes for frame in frames[1:]) == 4096
    back = cluster.call(dask_tasks.same, cluster.put(matrix[3])).result()
    assert back.untyped_storage().nbytes() < matrix.untyped_storage().nbytes()


def test_arrays_of_every_ml_dtype_travel(cluster: Any) -> None:
    """distributed's own way loses those whose kind has a letter that NumPy does not know."""
    names = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "int4", "float4_e2m1fn", "float8_e8m0fnu")
    arrays = {name: np.arange(1, 5).astype(getattr(ml_dtypes, name)) for name in names}
    there = cluster.call(dask_tasks.same, cluster.put(arrays))
    for name, back in there.result().items():
        assert back.dtype == arrays[name].dtype
        assert back.tobytes() == arrays[name].tobytes()
        assert back.flags.writeable


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_travel(cluster: Any, layout: torch.layout) -> None:
    x = torch.eye(3, dtype=torch.bfloat16).to_sparse(layout=layout)
    back = cluster.call(dask_tasks.same, cluster.put(x)).result()
    assert (back.layout, back.dtype) == (layout, torch.bfloat16)
    assert torch.equal(back.float().to_dense(), torch.eye(3))


class Labelled(torch.Tensor):
    """A subclass with an attribute of its own."""

    label = "none"


def test_subclasses_are_pickled_by_their_own_methods() -> None:
    """distributed's own way makes them plain tensors."""
    from distributed.protocol import deserialize, serialize

    ferry.dask.TensorPlugin()
    x = torch.ones(3).as_subclass(Labelled)
    x.label = "mine"
    header, frames = serialize(x)
    assert header["serializer"] == "pickle"
    assert b"_rebuild_from_type_v2" in bytes(frames[0])
    back = deserialize(header, frames)
    assert (type(back), back.label) == (Labelled, "mine")


def test_objects_without_tensors_travel_as_before(cluster: Any) -> None:
    from distributed.protocol import serialize

    for x in (3, "text", b"__main__", [1, 2], {"a": None}, {1, 2}, Batch(1, "two")):
        assert cluster.call(dask_tasks.same, cluster.put(x)).result() == x
    header, _ = serialize(np.ones(3))
    assert header["serializer"] == "dask"
    header, _ = serialize(np.ma.masked_array([1, 2], [True, False]))
    assert header["serializer"] == "dask"


def test_tensors_that_dask_spills_come_back(cluster: Any) -> None:
    tensors = {
        framework: ferry.to(dask_tasks.random_values(5 << 20), framework, dtype="bfloat16")
        for framework in FRAMEWORKS
    }
    expected = {name: dask_tasks.see(x) for name, x in tensors.items()}
    there = cluster.put(tensors)
    spilled = cluster.client.run(dask_tasks.evict_all, workers=[cluster.first])
    assert spilled[cluster.first] >= 1
    # The worker reads it for itself, and for the other worker.
    found = cluster.call(dask_tasks.see_all, there, worker=cluster.first).result()
    assert found == expected
    cluster.client.run(dask_tasks.evict_all, workers=[cluster.first])
    assert cluster.call(dask_tasks.see_all, there).result() == expected


def test_workers_count_the_bytes_of_tensors(cluster: Any) -> None:
    """By the entry point of the installed package: nothing is registered for it."""
    for framework in FRAMEWORKS:
        x = ferry.to(np.zeros(1 << 18, np.float32), framework)
        there = cluster.put(x)
        counted = cluster.client.run(dask_tasks.managed_bytes, there.key, workers=[cluster.first])
        assert counted == {cluster.first: 1 << 20}, framework


def test_a_tensor_that_tensorferry_cannot_read_is_pickled_by_its_framework(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error while a worker sends would leave the task that waits for it without an end."""
    from distributed.protocol import deserialize, serialize

    def fail(x: Any) -> Any:
        raise ferry.OutOfMemoryError("there is no memory\nhint: free some")

    ferry.dask.TensorPlugin()
    monkeypatch.setattr(ferry.pickling, "dumps", fail)
    header, frames = serialize(torch.arange(3, dtype=torch.bfloat16))
    assert b"_rebuild_tensor" in bytes(frames[0])
    assert deserialize(header, frames).tolist() == [0, 1, 2]
    assert "the framework's own pickle is sent instead: there is no memory" in caplog.text
