"""Trees go with one ticket, and come back as they were."""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from programs.processes import share_peer as there
from support.dtypes import ALL, sample
from support.peer_processes import Peer

import tensorferry as ferry


def there_and_back(peer: Peer, x: Any) -> Any:
    """What the other process makes of it, by plain pickling."""
    ticket = ferry.publish(x)
    return peer.run(there.fetch, str(ticket))


def same(one: Any, other: Any) -> bool:
    """Whether both are of the same types and the same bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return same([one.real, one.imag], [other.real, other.imag])
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return bool(one == other)


def test_that_differences_would_show() -> None:
    nan = struct.unpack("d", b"\1\0\0\0\0\0\xf8\x7f")[0]
    pairs = [(1, True), (1, 1.0), (0.0, -0.0), (nan, float("nan")), ({}, OrderedDict()), ([], ())]
    pairs += [(np.float32(1), np.float64(1)), ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
    assert not any(same(*pair) for pair in pairs)


VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    -(2**127),
    2**127 - 1,
    0.0,
    -0.0,
    5e-324,
    float("inf"),
    -float("inf"),
    struct.unpack("d", b"\xef\xcd\xab\x89\x67\x45\xfb\xff")[0],
    complex(-0.0, float("nan")),
    "",
    "Wörter, 語, 🜁, \0 and \n",
    b"",
    b"\0\xff",
    [],
    (),
    {},
    OrderedDict(),
    [[], ((),), {"": None}],
    {1: "int", "1": "text", None: "none", (1, ("a", None)): "tuple", 2.5: 1j, b"k": True},
    OrderedDict([("z", 1), ("a", 2)]),
    {"z": 1, "a": 2},
    np.float32(1.5),
    np.bool_(True),
    np.int8(-3),
    np.complex128(1 + 2j),
    ml_dtypes.bfloat16(1.5),
    ml_dtypes.int4(-3),
    ml_dtypes.float8_e4m3fn(0.5),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_values(value: object, peer: Peer) -> None:
    assert same(there_and_back(peer, [value]), [value])
    assert same(there_and_back(peer, {"k": (value, np.arange(2))})["k"][0], value)
    if not isinstance(value, bytes | np.generic):
        # Alone these are tensors, as they are for `to`.
        assert same(there_and_back(peer, value), value)


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
def test_numpy_scalars_of_every_type(dtype, peer: Peer) -> None:
    scalars = list(sample(dtype, 8).view(dtype.numpy))
    assert same(there_and_back(peer, scalars), scalars)


def test_bytes_and_scalars_alone_are_tensors(peer: Peer) -> None:
    """As they are for `to`."""
    assert same(there_and_back(peer, b"ab"), np.frombuffer(b"ab", np.uint8))
    assert same(there_and_back(peer, np.float32(3)), np.array(3, np.float32))


def test_one_tensor_twice_is_one_tensor(peer: Peer) -> None:
    x = np.arange(3.0)
    with ferry.trace() as trips:
        ticket = ferry.publish({"a": x, "b": [x, (x,)], "c": x[:]})
    assert len(trips) == 2
    for framework in ("numpy", "torch"):
        assert peer.run(there.tied_in_a_tree, str(ticket), framework) == (True, False, 9.0)


@pytest.mark.parametrize("wish", [{}, {"copy": True}, {"dtype": "float64"}], ids=str)
def test_tied_weights_are_copied_once(wish: dict[str, Any], peer: Peer) -> None:
    """The tensors of a state dict are objects of their own, also where parameters are one."""
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(500, 300), "b": torch.nn.Linear(500, 300)})
    model["b"].weight = model["a"].weight
    weights = {name[0]: x for name, x in model.state_dict().items() if "weight" in name}
    weights["c"] = weights["a"].clone()
    assert weights["a"] is not weights["b"]
    with ferry.trace() as trips:
        ticket = ferry.publish(weights, **wish)
    first, tied, other = trips
    size = 500 * 300 * (8 if "dtype" in wish else 4)
    assert [trip.bytes_moved for trip in trips] == [size, 0, size]
    assert (first.plan.action, tied.plan.action, other.plan.action) == ("copy", "share", "copy")
    assert any("one copy" in note for note in tied.plan.notes)
    assert not any("one copy" in note for trip in (first, other) for note in trip.plan.notes)
    began = float(weights["c"].reshape(-1)[0])
    for framework in ("numpy", "torch"):
        got = peer.run(there.write_one_of_a_tree, str(ticket), framework, (0, 0))
        assert got == {"a": 9, "b": 9, "c": pytest.approx(began)}
    assert float(weights["a"][0, 0]) == began


def test_views_that_differ_are_copied_each(peer: Peer) -> None:
    """The same address is not enough: each is what it was, and shares with no other."""
    x = np.arange(12.0)
    views = {"a": x, "b": x[:6], "c": x.reshape(3, 4), "d": x.view(np.int64), "e": x[::2]}
    views |= {"f": x.view(">f8"), "g": np.broadcast_to(x[:1], 12)}
    with ferry.trace() as trips:
        ticket = ferry.publish(views)
    assert [trip.bytes_moved for trip in trips] == [views[name].nbytes for name in views]
    expected = {name: float(view.reshape(-1)[0]) for name, view in views.items()}
    got = peer.run(there.write_one_of_a_tree, str(ticket), "numpy", 0)
    assert got == expected | {"a": 9.0}


def test_memory_that_is_made_on_the_way_is_never_tied(peer: Peer) -> None:
    """Each leaf releases memory that it made, so that the next may get the same address."""

    class Made:
        def __init__(self, value: float) -> None:
            self.value = value

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.full(1 << 16, self.value)

    leaves = [Made(float(value)) for value in range(8)]
    leaves += [np.full(1 << 16, float(value)) for value in range(8, 16)]
    ticket = ferry.publish(leaves)
    assert peer.run(there.fetch_first_and_last, str(ticket)) == [
        [value, value] for value in range(16)
    ]


def test_views_of_one_shared_memory_stay_views(peer: Peer) -> None:
    x = ferry.empty_shared(10, "float32")
    x[:] = 0
    ticket = ferry.publish({"all": x, "part": x[2:4]})
    peer.run(there.attach, str(ticket))
    peer.run(there.write_leaf, "part", slice(None), 5)
    peer.run(there.keep_key, "all")
    assert peer.run(there.values) == [0, 0, 5, 5, 0, 0, 0, 0, 0, 0] == x.tolist()


def test_mixed_frameworks(peer: Peer) -> None:
    import jax.numpy as jnp
    import mlx.core as mx
    import paddle
    import tensorflow as tf

    tree = {
        "numpy": np.ones(2, np.float32),
        "torch": torch.ones(2),
        "jax": jnp.ones(2),
        "tensorflow": tf.ones(2),
        "paddle": paddle.ones([2]),
        "mlx": mx.ones(2),
    }
    got = there_and_back(peer, tree)
    assert list(got) == list(tree)
    for name, array in got.items():
        assert type(array) is np.ndarray, name
        assert array.dtype == np.float32
        assert array.tolist() == [1, 1]


def test_a_state_dict_of_a_thousand_tensors(peer: Peer) -> None:
    state = OrderedDict(
        (f"layer.{n}.weight", torch.full((n % 7, 3), float(n))) for n in range(1000)
    )
    ticket = ferry.publish(state)
    total, kind, leases = peer.run(there.attach_state_dict, str(ticket))
    assert total == sum(float(value.sum()) for value in state.values())
    assert kind == ("OrderedDict", ["layer.0.weight", "layer.1.weight"], (5, 3))
    assert leases <= 3, "one connection and one arena"
    assert ticket.leases == 1
    peer.run(there.drop, "got")


def test_a_state_dict_of_a_module(peer: Peer) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    ticket = ferry.publish(module.state_dict())
    got = peer.run(there.fetch_all_values, str(ticket), "torch")
    assert got == {name: value.tolist() for name, value in module.state_dict().items()}
