"""Trees that do not travel, and the place in them that is why."""

from __future__ import annotations

from collections import Counter, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from programs.processes import share_peer as there
from support.followed_hints import follow
from support.peer_processes import Peer, PeerError
from support.refusals import refused

import tensorferry as ferry

Pair = namedtuple("Pair", "a b")


@dataclass
class Data:
    a: object


class Child(dict):
    pass


class Text(str):
    pass


class Whole(int):
    pass


STRANGERS = [
    Pair(1, np.ones(1)),
    Data(np.ones(1)),
    Child(a=1),
    defaultdict(list, a=[1]),
    Counter("abc"),
    UserDict(a=1),
    deque([1]),
    Text("a"),
    Whole(3),
    {1, 2},
    frozenset((1,)),
    object(),
    print,
    ValueError("x"),
    int,
    range(3),
    type("Sub", (list,), {})([1]),
    type("Under", (tuple,), {})((1,)),
]


def test_a_module_of_torch() -> None:
    module = torch.nn.Linear(1, 1)
    for given in (module, [module]):
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            ferry.publish(given)
        assert list(follow(caught.value, x=module)) == ["weight", "bias"]


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda value: type(value).__name__)
def test_what_cannot_be_made_again(stranger: object) -> None:
    name = type(stranger).__name__
    for tree, place in (
        (stranger, ""),
        ([stranger], "at [0]: "),
        ({"a": (1, [stranger])}, "at ['a'][1][0]: "),
    ):
        with ferry.trace() as trips:
            error = refused(
                ferry.InvalidArgumentError, ValueError, lambda tree=tree: ferry.publish(tree)
            )
        assert str(error).startswith(place), str(error)
        assert name in str(error)
        assert not trips


@pytest.mark.parametrize("key", [frozenset((1,)), np.float32(1), Text("a"), Pair(1, 2), int])
def test_keys_that_cannot_be_made_again(key: object) -> None:
    tree = {"a": {key: np.ones(1)}}
    error = refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.publish(tree))
    assert str(error).startswith("at ['a']"), str(error)


def test_numbers_that_are_too_large() -> None:
    for number in (2**127, -(2**127) - 1, 10**100):
        error = refused(
            ferry.InvalidArgumentError, ValueError, lambda n=number: ferry.publish({"k": [n]})
        )
        assert str(error).startswith("at ['k'][0]: "), str(error)


def test_text_that_is_no_text() -> None:
    tree = {"k": ["\ud800"]}
    error = refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.publish(tree))
    assert str(error).startswith("at ['k'][0]: "), str(error)


def test_arrays_that_are_no_numbers() -> None:
    tree = {"k": [np.array(["a"])]}
    error = refused(ferry.UnsupportedDTypeError, TypeError, lambda: ferry.publish(tree))
    assert str(error).startswith("at ['k'][0]: "), str(error)


def test_a_tree_that_holds_itself() -> None:
    one: list[object] = []
    one.append(one)
    two: dict[str, object] = {}
    two["a"] = [two]
    for tree in (one, two):
        error = refused(
            ferry.InvalidArgumentError, ValueError, lambda tree=tree: ferry.publish(tree)
        )
        assert "100" in str(error).partition("\n")[0]


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_deep_trees_arrive_or_are_refused(kind: type, peer: Peer) -> None:
    """What is published can be attached, however deep."""
    for depth in (50, 99, 100, 101, 102, 127, 128, 129, 200):
        tree: Any = 5
        for _ in range(depth):
            tree = {"k": tree} if kind is dict else kind([tree])
        try:
            ticket = ferry.publish(tree)
        except ferry.InvalidArgumentError:
            assert depth > 99
            continue
        assert peer.run(there.fetch, str(ticket)) == tree
        assert depth <= 128


def test_deep_keys_are_refused(peer: Peer) -> None:
    """Keys have no bound of their own on the way."""
    key: Any = 1
    for _ in range(126):
        key = (key,)
    ticket = ferry.publish({key: 1})
    assert peer.run(there.fetch, str(ticket)) == {key: 1}
    for _ in range(1000):
        key = (key,)
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.publish({key: 1}))


def test_a_tree_of_too_many_bytes() -> None:
    error = refused(
        ferry.InvalidArgumentError,
        ValueError,
        lambda: ferry.publish({"k": bytes(17 << 20), "x": 1}),
    )
    assert "16 MiB" in str(error)


def test_what_the_target_lacks_is_named_by_its_path(peer: Peer) -> None:
    ticket = ferry.publish({"a": [np.ones(2), np.ones(2, ml_dtypes.float6_e2m3fn)]})
    with pytest.raises(PeerError) as caught:
        peer.run(there.visit, str(ticket), "torch")
    assert caught.value.kind == "UnsupportedDTypeError"
    assert caught.value.text.startswith("at ['a'][1]: "), caught.value.text
