"""Actors: tensors from one to another, who sees a write, and tied weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
import torch
from support import ray_tasks
from support.introspect import check_tensor
from support.ray_tasks import FRAMEWORKS, environment_of

import tensorferry as ferry

pytestmark = pytest.mark.usefixtures("cluster")

Holder = ray.remote(num_cpus=0)(ray_tasks.Holder)
tied_pair = ray.remote(ray_tasks.tied_pair)

# Below and above the size up to which Ray carries values in its messages, past its object store.
SIZES = (12, 1 << 20)


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    """Two actors for tensors of the test's framework; their processes end with the test."""
    framework = request.getfixturevalue("framework")
    actors = [Holder.options(runtime_env=environment_of(framework)).remote() for _ in range(2)]
    yield actors
    for actor in actors:
        ray.kill(actor)


@pytest.mark.one_case
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS, reverse=True))
def test_a_tensor_goes_from_actor_to_actor(framework: str, pair: list[Any]) -> None:
    first, second = pair
    for size in SIZES:
        values = np.random.default_rng(size).integers(0, 1 << 30, (3, size // 3), np.int32)
        sent = ferry.to(values, framework)
        there = ray.get(first.keep.remote(sent))
        assert there == (framework, "int32", values.shape, values.tobytes())
        assert ray.get(second.take_from.remote(first)) == there
        check_tensor(framework, ray.get(second.give.remote()), values)


@pytest.mark.one_case
@pytest.mark.parametrize("framework", ["torch"])
@pytest.mark.parametrize("size", SIZES)
def test_a_write_to_what_was_got_changes_nobody_elses(
    framework: str, size: int, pair: list[Any]
) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 30, size, np.int32)
    ref = ray.put(torch.from_numpy(values.copy()))
    mine, twin = ray.get(ref), ray.get(ref)
    seen = ray.get([actor.keep.remote(ref) for actor in pair])
    assert seen == [(framework, "int32", values.shape, values.tobytes())] * 2
    mine.fill_(7)
    written = ray.get(pair[0].write.remote())
    assert written[3] == np.full_like(values, 7).tobytes()
    assert ray.get(pair[1].seen.remote())[3] == values.tobytes()
    check_tensor("torch", twin, values)
    check_tensor("torch", ray.get(ref), values)


@pytest.mark.parametrize("framework", ["numpy", "jax", "tensorflow"])
def test_shared_memory_of_the_store_cannot_be_written(framework: str) -> None:
    """Nor can what torch makes of it, which is a copy."""
    values = np.arange(1 << 20, dtype=np.int32)
    ref = ray.put(ferry.to(values, framework))
    got = ray.get(ref)
    array = ferry.to(got, "numpy", copy=False)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 7
    ferry.to(got, "torch").fill_(7)
    check_tensor(framework, ray.get(ref), values)


def test_a_write_to_a_result_does_not_reach_the_next_get() -> None:
    """Also for one that Ray carries in its message, past the object store."""
    task = ray.remote(num_returns=2)(ray_tasks.see_and_return)
    _, back = task.options(runtime_env=environment_of("torch")).remote({"x": torch.arange(4)})
    ray.get(back)["x"].fill_(9)
    assert ray.get(back)["x"].tolist() == [0, 1, 2, 3]


def test_tied_weights_stay_tied() -> None:
    """Both in the worker and on the way back, and only with each other."""
    weights = torch.zeros(1 << 18)
    pair = [weights, weights.view(-1)]
    assert pair[0] is not pair[1]
    task = tied_pair.options(num_returns=2, runtime_env=environment_of("torch"))
    are_tied, back = ray.get(list(task.remote(pair)))
    assert are_tied
    assert [x.tolist()[0] for x in back] == [5, 5]
    back[1].fill_(3)
    assert back[0].tolist()[0] == 3
    assert weights.tolist()[0] == 0


def test_a_state_dict_keeps_its_tied_weights() -> None:
    layer = torch.nn.Linear(64, 64, bias=False)
    model = torch.nn.Sequential(layer, torch.nn.Linear(64, 64, bias=False))
    model[1].weight = layer.weight
    back = ray.get(ray.put(model.state_dict()))
    assert back["0.weight"].data_ptr() == back["1.weight"].data_ptr()
    got = ferry.ray.get(ray.put(model.state_dict()), "torch")
    assert got["0.weight"].data_ptr() == got["1.weight"].data_ptr()
    assert torch.equal(got["0.weight"], layer.weight)
