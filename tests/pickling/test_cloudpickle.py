"""cloudpickle with `enable`: it carries tensors out of band, and nothing else changes."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

import tensorferry as ferry
from tensorferry import pickling

import jax.numpy as jnp  # isort: skip


@pytest.fixture
def enabled() -> Iterator[None]:
    pickling.enable()
    yield
    pickling.disable()


def out_of_band(x: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers: list[pickle.PickleBuffer] = []
    return cloudpickle.dumps(x, protocol=5, buffer_callback=buffers.append), buffers


def test_tensors_travel_out_of_band(enabled: None) -> None:
    tree = {"t": torch.rand(1000), "j": jnp.ones(1000), "f": lambda x: x + 1}
    data, buffers = out_of_band(tree)
    assert len(buffers) == 2
    back = pickle.loads(data, buffers=buffers)
    assert torch.equal(back["t"], tree["t"])
    assert back["f"](1) == 2
    with pickling.load_options("numpy"):
        back = pickle.loads(data, buffers=buffers)
    assert isinstance(back["t"], np.ndarray)
    assert isinstance(back["j"], np.ndarray)


def test_every_protocol_works(enabled: None) -> None:
    tree = [torch.rand(10), np.arange(3), np.array(["a"]), np.array([None])]
    for protocol in (2, 3, 4, 5):
        back = pickle.loads(cloudpickle.dumps(tree, protocol=protocol))
        assert torch.equal(back[0], tree[0])
        assert all(map(np.array_equal, back[1:], tree[1:]))


def test_disable_undoes_it() -> None:
    maps = list(cloudpickle.CloudPickler.dispatch_table.maps)
    pickling.enable()
    pickling.enable()
    assert len(cloudpickle.CloudPickler.dispatch_table.maps) == len(maps) + 1
    assert cloudpickle.CloudPickler.dispatch_table.maps[0] is maps[0]
    pickling.disable()
    pickling.disable()
    assert all(
        one is other
        for one, other in zip(cloudpickle.CloudPickler.dispatch_table.maps, maps, strict=True)
    )
    assert out_of_band(torch.rand(1000))[1] == []


def others(x: Any) -> list[Any]:
    """What does not use cloudpickle: the bytes that it gives, and whose memory it uses."""
    saved = io.BytesIO()
    torch.save(x, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=True)
    shallow, deep = copy.copy(x["w"]), copy.deepcopy(x)
    return [
        saved.getvalue(),
        pickle.dumps(x),
        pickle.dumps(x, protocol=4),
        pickle.dumps(x, protocol=5, buffer_callback=lambda _: None),
        [shallow.data_ptr() == x["w"].data_ptr(), deep["w"].data_ptr() == x["w"].data_ptr()],
        loaded["w"].tolist(),
    ]


def test_nothing_else_changes(enabled: None) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    for w in (weight, weight.t(), weight[:, 1], torch.nn.Parameter(weight), weight.bfloat16()):
        x = {"w": w}
        pickling.enable()
        with_it = others(x)
        pickling.disable()
        assert others(x) == with_it


PROGRAM = "import sys, tensorferry as ferry; ferry.pickling.enable(); %s"


@pytest.mark.parametrize(
    "body",
    [
        "assert not {'torch', 'jax', 'tensorflow', 'cloudpickle', 'ray'} & sys.modules.keys()",
        "import cloudpickle; assert len(cloudpickle.CloudPickler.dispatch_table.maps) == 3",
        "import cloudpickle, inspect; assert inspect.getsource(cloudpickle.CloudPickler)",
        "ferry.pickling.disable(); import cloudpickle;"
        "assert len(cloudpickle.CloudPickler.dispatch_table.maps) == 2",
    ],
)
def test_modules_that_are_imported_later(body: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM % body], check=True)


def test_the_table_is_a_mapping() -> None:
    table = pickling.dispatch_table()
    assert torch.Tensor in table
    assert torch.nn.Parameter in table
    assert type(jnp.ones(1)) in table
    assert np.ndarray in table
    for other in (dict, np.matrix, np.float32, torch.nn.Module, object, "torch.Tensor", 3):
        assert other not in table
        assert table.get(other) is None
        with pytest.raises(KeyError):
            table[other]
    listed = dict(table)
    assert len(listed) == len(table)
    assert {torch.Tensor, torch.nn.Parameter, np.ndarray, type(jnp.ones(1))} <= listed.keys()
    assert set(table.keys()) == listed.keys()
    assert len({id(reducer) for reducer in table.values()}) == 1
    with pytest.raises(ferry.InvalidArgumentError):
        pickling.load_options("no such framework")
