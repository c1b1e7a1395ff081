"""Objects that pass through a tree with tensors in them: one warning for a type, and notes."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch
from support.refusals import refused

import tensorferry as ferry


class Box:
    def __init__(self, values):
        self.values = values

    @property
    def never(self):
        raise AssertionError("a property ran")


class Slotted:
    __slots__ = ("__hidden", "unset")

    def __init__(self, values):
        self.__hidden = values


class Cache:
    """As those of transformers: a list of objects with tensors."""

    def __init__(self, values):
        self.layers = [Box(values)]


def passes(kind, convert) -> None:
    """An object of a new class passes with one warning, which names its type."""
    new = type("New", (kind,), {"__slots__": ()} if kind is Slotted else {})
    given = {"a": new(torch.ones(2)), "b": [new(torch.ones(2))], "x": np.ones(3)}
    with pytest.warns(
        UserWarning, match=r"\.New in a tree.*\nhint: .*register_container"
    ) as caught:
        result = convert(given)
    assert len(caught) == 1
    assert result["a"] is given["a"]
    assert type(result["x"]) is torch.Tensor
    assert convert(given)["b"][0] is given["b"][0], "the second time without a warning"


@pytest.mark.parametrize("kind", [Box, Slotted, Cache])
def test_every_entry_point_warns_once_for_a_type(kind):
    for convert in (
        lambda tree: ferry.to(tree, "torch"),
        lambda tree: ferry.to(tree, "torch", copy=True),
        lambda tree: ferry.to_async(tree, "torch", copy=True).result(),
        lambda tree: next(iter(ferry.feed([tree], "torch"))),
        ferry.via("torch", returns="keep")(lambda tree: tree),
    ):
        passes(kind, convert)


def test_plan_and_trace_list_the_objects():
    class Listed(Box):
        pass

    tree = {"a": Listed(torch.ones(2)), "x": np.ones(3)}
    plan = ferry.plan(tree, "torch")
    (note,) = plan.notes
    assert "['a'] (" in note
    assert "Listed)" in note
    assert "register_container" in note
    assert f"note: {note}" in str(plan)
    with pytest.warns(UserWarning, match="register_container"):
        ferry.to(tree, "torch")
    for convert in (
        lambda: ferry.to(tree, "torch"),
        lambda: ferry.to_async(tree, "torch", copy=True).result(),
    ):
        with ferry.trace() as trips:
            convert()
        assert trips.notes == [note]
        assert str(trips).endswith(f"\nnote: {note}")
        assert "Listed)" in trips._repr_html_()


def test_objects_without_tensors_pass_in_silence():
    class Empty(Box):
        pass

    class Metaclass(type):
        shared = torch.ones(2)

    class WithClassAttribute(metaclass=Metaclass):
        values = torch.ones(2)

    leaves = [
        Empty(3),
        Empty([]),
        Empty([1, 2]),
        Empty(np.float32(3)),
        Empty(np.array([object()])),
        WithClassAttribute(),
        WithClassAttribute,
        types.ModuleType("m"),
        torch.nn.Linear(1, 1),
        np.random.default_rng(0),
    ]
    result = ferry.to([*leaves, np.ones(3)], "torch")
    assert all(one is other for one, other in zip(result, leaves, strict=False))
    assert ferry.plan([*leaves, np.ones(3)], "torch").notes == []


def test_a_tree_of_nothing_else_is_refused_with_the_way_to_open_it():
    class Alone(Box):
        pass

    with pytest.warns(UserWarning, match="register_container"):
        error = refused(
            ferry.NotATensorError, TypeError, lambda: ferry.to([Alone(torch.ones(2))], "numpy")
        )
    assert "register_container" in error.hint
    ferry.register_container(Alone, lambda x: ([x.values], None), lambda _, parts: Alone(*parts))
    assert type(ferry.to([Alone(torch.ones(2))], "numpy")[0].values) is np.ndarray


def test_a_method_does_not_warn_about_its_object():
    class Model(Box):
        @ferry.via("torch")
        def forward(self, x):
            return x * self.values

    assert type(Model(torch.ones(3)).forward(np.ones(3))) is np.ndarray


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_stops_the_conversion():
    class Strict(Box):
        pass

    with pytest.raises(UserWarning, match="Strict"):
        ferry.to([Strict(torch.ones(2)), np.ones(3)], "torch")
