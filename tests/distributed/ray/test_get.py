"""`ferry.ray.get`: lists, options, errors, and objects that were put without tensorferry."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import ray
import scipy.sparse
import torch
from ray.exceptions import GetTimeoutError
from support import ray_tasks
from support.introspect import INSPECTORS, check_tensor, x64
from support.ray_tasks import FRAMEWORKS, environment_of
from support.refusals import refused

import tensorferry as ferry

pytestmark = pytest.mark.usefixtures("cluster")

VALUES = np.random.default_rng(0).random((64, 1024), np.float32)
get_without = ray.remote(ray_tasks.get_without)


@pytest.fixture
def without_tensorferry() -> Iterator[None]:
    """This process pickles as Ray does by itself."""
    ferry.pickling.disable()
    try:
        yield
    finally:
        ferry.pickling.enable()


@dataclass
class Batch:
    """What users put."""

    x: Any
    names: Any
    count: int


def object_store_address(ref: Any) -> int:
    """Where the bytes of a tensor lie in this process's mapping of the object store."""
    return INSPECTORS["numpy"].address(ferry.ray.get(ref, "numpy"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_it_reads_from_the_object_store_without_another_copy(framework: str) -> None:
    ref = ray.put(torch.from_numpy(VALUES.copy()))
    got = ferry.ray.get(ref, framework, writable=False)
    check_tensor(framework, got, VALUES)
    assert INSPECTORS[framework].address(got) == object_store_address(ref)


@pytest.mark.parametrize("writable", [None, True])
@pytest.mark.parametrize("with_tensorferry", [True, False])
def test_torch_gets_a_copy_that_can_be_written(
    with_tensorferry: bool, writable: bool | None, request: pytest.FixtureRequest
) -> None:
    if not with_tensorferry:
        request.getfixturevalue("without_tensorferry")
    ref = ray.put(VALUES)
    got = ferry.ray.get(ref, "torch", writable=writable)
    assert got.data_ptr() != object_store_address(ref)
    got.fill_(7)
    check_tensor("torch", ferry.ray.get(ref, "torch"), VALUES)


@pytest.mark.parametrize("with_tensorferry", [True, False])
def test_numpy_gets_a_copy_if_it_is_to_be_written(
    with_tensorferry: bool, request: pytest.FixtureRequest
) -> None:
    if not with_tensorferry:
        request.getfixturevalue("without_tensorferry")
    ref = ray.put([VALUES])
    assert not ferry.ray.get(ref, "numpy")[0].flags.writeable
    (got,) = ferry.ray.get(ref, "numpy", writable=True)
    got[:] = 7
    check_tensor("numpy", ferry.ray.get(ref, "numpy")[0], VALUES)


@pytest.mark.usefixtures("without_tensorferry")
def test_the_store_is_shared_with_torch_on_request() -> None:
    """Also where Ray itself pickled the array."""
    ref = ray.put(VALUES)
    got = ferry.ray.get(ref, "torch", writable=False)
    check_tensor("torch", got, VALUES)
    assert got.data_ptr() == object_store_address(ref)


class Model:
    """An object of a class that nothing knows, with a tensor inside."""

    def __init__(self, weights: Any) -> None:
        self.weights = weights


def test_tensors_inside_of_other_objects_stay_as_they_are(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Their classes would not expect others. The tensors beside them are converted."""
    layer = torch.nn.Linear(2, 2)
    matrix = scipy.sparse.csr_array(np.eye(3))
    column = np.array([VALUES, None], object)
    ref = ray.put({"x": VALUES, "layer": layer, "model": Model(VALUES), "o": column})
    got = ferry.ray.get(ref, "jax")
    check_tensor("jax", got["x"], VALUES)
    assert torch.equal(got["layer"](torch.ones(2)), layer(torch.ones(2)))
    check_tensor("numpy", got["model"].weights, VALUES)
    check_tensor("numpy", got["o"][0], VALUES)
    got = ferry.ray.get(ray.put([VALUES, {"m": matrix, "ref": ref}]), "torch")
    check_tensor("torch", got[0], VALUES)
    assert torch.equal(got[1]["m"].to_dense(), torch.eye(3, dtype=torch.float64))
    assert got[1]["ref"] == ref
    assert capfd.readouterr().err == ""


def test_sparse_tensors_are_converted() -> None:
    dense = torch.eye(3)
    ref = ray.put({"s": dense.to_sparse(), "x": dense})
    got = ferry.ray.get(ref, "jax")
    assert type(got["s"]).__name__ == "BCOO"
    assert got["s"].todense().tolist() == dense.tolist()
    check_tensor("jax", got["x"], dense.numpy())


def test_a_list_of_refs_gives_a_list() -> None:
    refs = [ray.put(VALUES + number) for number in range(3)]
    for number, got in enumerate(ferry.ray.get(refs, "jax")):
        check_tensor("jax", got, VALUES + number)
    assert ferry.ray.get([], "jax") == []


def test_frameworks_and_devices_are_given_as_for_to() -> None:
    ref = ray.put(VALUES)
    check_tensor("torch", ferry.ray.get(ref, torch, device=torch.device("cpu")), VALUES)
    check_tensor("torch", ferry.ray.get(ref, "torch", device="cpu"), VALUES)


@pytest.mark.usefixtures("without_tensorferry")
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_what_was_put_without_tensorferry_is_converted(source: str) -> None:
    ref = ray.put({"x": ferry.to(VALUES, source), "n": 3})
    for target in FRAMEWORKS:
        got = ferry.ray.get(ref, target)
        check_tensor(target, got["x"], VALUES)
        assert got["n"] == 3


@pytest.mark.parametrize("with_tensorferry", [True, False])
def test_the_rest_of_an_object_stays_as_it_is(
    with_tensorferry: bool, request: pytest.FixtureRequest
) -> None:
    if not with_tensorferry:
        request.getfixturevalue("without_tensorferry")
    names = np.array(["a", "b"])
    objects = np.array([None, {}], object)
    batch = Batch(VALUES, names, 3)
    got = ferry.ray.get(
        ray.put({"b": batch, "o": objects, "raw": b"abc", "s": "x", "f": np.float32(1)}), "torch"
    )
    check_tensor("torch", got["b"].x, VALUES)
    assert got["b"].names.tolist() == ["a", "b"]
    assert isinstance(got["f"], np.float32)
    assert got["o"].tolist() == [None, {}]
    assert (got["b"].count, got["raw"], got["s"]) == (3, b"abc", "x")


@pytest.mark.parametrize("value", [3, None, "text", b"bytes", [1, 2], {"a": (1.5, None)}, {1, 2}])
def test_objects_without_tensors_come_back_as_they_are(value: Any) -> None:
    got = ferry.ray.get(ray.put(value), "jax")
    assert got == value
    assert type(got) is type(value)


def test_options_are_checked_before_it_waits_and_the_timeout_is_rays() -> None:
    """The ref is one that is never ready: no node has 100 CPUs."""

    @ray.remote(num_cpus=100)
    def never() -> None: ...

    ref = never.remote()
    try:
        refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.ray.get(ref, "tourch"))
        refused(
            ferry.InvalidArgumentError, ValueError, lambda: ferry.ray.get(ref, "jax", device="gpuu")
        )
        with pytest.raises(GetTimeoutError):
            ferry.ray.get(ref, "jax", timeout=0)
    finally:
        ray.cancel(ref)


def test_an_error_of_a_tensor_is_ours_and_not_wrapped_by_ray() -> None:
    ref = ray.put(np.arange(3, dtype=np.int64))
    with x64(False):
        error = refused(ferry.UnsupportedDTypeError, TypeError, lambda: ferry.ray.get(ref, "jax"))
    assert str(error).startswith("JAX has no int64")


def test_a_reader_without_the_framework_is_told_of_get() -> None:
    """Ray wraps the error, and shows our text and hint; and what the hint says works."""
    ref = ray.put(torch.from_numpy(VALUES.copy()))
    task = get_without.options(runtime_env=environment_of("none"))
    kind, text = ray.get(task.remote("torch", [ref], None))
    assert kind == "RaySystemError"
    assert "PyTorch is not installed" in text
    assert 'ferry.ray.get(ref, "numpy")' in text
    other = get_without.options(runtime_env=environment_of("none but numpy"))
    seen = ray.get(other.remote("torch", [ref], "numpy"))
    assert seen == ("numpy", "float32", VALUES.shape, VALUES.tobytes())


def test_it_reads_in_a_thread_of_an_async_actor() -> None:
    reader = ray.remote(num_cpus=0)(ray_tasks.AsyncReader)
    actor = reader.options(runtime_env=environment_of("numpy")).remote()
    ref = ray.put(torch.from_numpy(VALUES.copy()))
    seen = ray.get(actor.read.remote([ref], "numpy"))
    assert seen == ("numpy", "float32", VALUES.shape, VALUES.tobytes())
    ray.kill(actor)


def test_the_example_of_get_runs() -> None:
    scope = {"ferry": ferry, "ray": ray, "torch": torch}
    text = inspect.getdoc(ferry.ray.get) or ""
    test = doctest.DocTestParser().get_doctest(text, scope, "get", None, 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 0
    assert result.failed == 0
