"""Objects that pass through a tree with tensors in them: one warning for a type, and notes."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import functools
import itertools
import logging
import types
import weakref

import datasets
import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import xarray as xr
from support.followed_hints import follow
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


class Module(torch.nn.Sequential):
    """As modules of PyTorch: its attributes are dicts, with modules."""

    def __init__(self, values):
        super().__init__(torch.nn.ReLU(), torch.nn.ParameterDict({"x": values}))


class OwnMapping(collections.abc.Mapping):
    def __init__(self, values):
        self._items = {"x": None, "y": values}

    def never(self, *_):
        raise AssertionError("a method ran")

    __getitem__ = __iter__ = __len__ = __eq__ = never
    __hash__ = None


def passes(kind, convert) -> None:
    """An object of a new class passes with one warning, which names its type."""
    new = type("New", (kind,), {"__slots__": ()} if kind is Slotted else {})
    given = {"a": new(torch.ones(2)), "b": [new(torch.ones(2))], "x": np.ones(3)}
    with pytest.warns(
        UserWarning, match=r"\.New in a tree.*\nhint: .*(register_container|x\.state_dict)"
    ) as caught:
        result = convert(given)
    assert len(caught) == 1
    assert result["a"] is given["a"]
    assert type(result["x"]) is torch.Tensor
    assert convert(given)["b"][0] is given["b"][0], "the second time without a warning"


@pytest.mark.parametrize("kind", [Box, Slotted, Cache, Module, OwnMapping])
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


T = torch.ones(2)
#: Objects that hold a tensor, which no loop or property reads.
HOLDERS = {
    "attribute of an attribute": Box(Box(Slotted(T))),
    "dict": Box({"a": {"b": {"c": {"d": {"e": T}}}}}),
    "list that starts otherwise": Box([None, 1, "a", T]),
    "tuple": Box((1, (2, T))),
    "deque": Box(collections.deque([0, T])),
    "named mapping": Box(types.MappingProxyType({"a": T})),
    "set": {T},
    "frozenset": Box(frozenset([T])),
    "values": {"a": T}.values(),
    "items": collections.OrderedDict(a=T).items(),
    "keys": {T: 1}.keys(),
    "partial": functools.partial(print, T),
    "generator": (part for part in [T]),
    "parameters": torch.nn.Linear(1, 1).parameters(),
    "iterator": map(str, [T]),
    "optimizer": torch.optim.SGD([torch.nn.Parameter(T)]),
    "parameters by name": torch.nn.ParameterDict({"a": T}),
    "list of parameters": torch.nn.ParameterList([T]),
    "loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(T)),
    "sparse tensor": Box([T.to_sparse()]),
    "array with a mask": Box(np.ma.masked_array([1.0, 2], [0, 1])),
    "variable of xarray": Box(xr.DataArray([1.0])),
    "layer of Keras": keras.layers.Dense(1),
    "table": Box(pa.table({"a": [1.0]})),
    "dataset of Hugging Face": datasets.Dataset(pa.table({"a": [1.0]})),
    "stream of Hugging Face": datasets.Dataset(pa.table({"a": [1.0]})).to_iterable_dataset(),
    "chain": itertools.chain([T]),
    "cycle": itertools.cycle([T]),
    "repeat": itertools.repeat(T),
    "slice": itertools.islice([T], 1),
    "long list": Box([T, *range(300)]),
    "six levels": Box(Box(Box(Box(Box(Box(T)))))),
    "weak values": weakref.WeakValueDictionary(a=T),
    "weak set": weakref.WeakSet([T]),
    "weak keys": weakref.WeakKeyDictionary({Box: T}),
    "own mapping, read-only": types.MappingProxyType(OwnMapping(T)),
}


HOLDERS["layer of Keras"].build((None, 2))


@pytest.mark.filterwarnings("ignore:an object of type")
@pytest.mark.parametrize("name", HOLDERS)
def test_what_an_object_holds(name):
    tree = {"a": HOLDERS[name], "x": np.ones(3)}
    (note,) = ferry.plan(tree, "torch").notes
    assert "['a'] (" in note
    with ferry.trace() as trips:
        assert ferry.to(tree, "torch")["a"] is HOLDERS[name]
    assert trips.notes == [note]
    if name == "generator":
        assert list(HOLDERS[name]) == [T], "it is not advanced"


@dataclasses.dataclass
class WithAttribute:
    a: object

    def __post_init__(self):
        self.extra = {"parts": [torch.ones(2)]}


class DictWithAttribute(dict):
    extra = None

    def __init__(self, a):
        super().__init__(a=a)
        self.extra = torch.ones(2)


class ListWithAttribute(list):
    def __init__(self, a):
        super().__init__([a])
        self.extra = Box(torch.ones(2))


@pytest.mark.parametrize("kind", [WithAttribute, DictWithAttribute, ListWithAttribute])
def test_attributes_that_are_no_parts(kind):
    class New(kind):
        pass

    tree = {"a": New(np.ones(2)), "b": New(np.ones(2))}
    hint = "declare them as fields" if kind is WithAttribute else "store them as items"
    with pytest.warns(
        UserWarning, match=rf"\.New in a tree keeps attributes .*\nhint: {hint}"
    ) as caught:
        result = ferry.to(tree, "torch")
    assert len(caught) == 1
    assert result["a"].extra is tree["a"].extra
    assert ferry.to(tree, "torch")["a"].extra is tree["a"].extra, "without a warning"
    (note,) = ferry.plan(tree, "torch").notes
    assert "['a'].extra (" in note
    assert "['b'].extra (" in note
    assert hint in note
    with ferry.trace() as trips:
        ferry.to(tree, "torch")
    assert trips.notes == [note]


def test_a_registered_dataclass_keeps_its_attributes_in_silence():
    class New(WithAttribute):
        pass

    ferry.register_container(New, lambda x: ([x.a, x.extra], None), lambda _, parts: New(parts[0]))
    assert ferry.plan(New(np.ones(2)), "torch").notes == []


def test_attributes_that_are_parts_pass_in_silence():
    class Output(collections.OrderedDict):
        """As those of transformers."""

        def __setitem__(self, name, value):
            super().__setitem__(name, value)
            super().__setattr__(name, value)

    class Attributes(dict):
        def __init__(self, **items):
            super().__init__(items)
            self.__dict__ = self

    class Other(Box, dict):
        pass

    state = torch.nn.Linear(1, 1).state_dict()
    output = Output()
    output["x"] = torch.ones(2)
    tree = [state, output, Attributes(x=torch.ones(2)), Other([1, "a"])]
    plain = WithAttribute(torch.ones(2))
    plain.extra = {"a": 1}
    assert ferry.plan([*tree, plain], "numpy").notes == []
    result = ferry.to([*tree, plain], "numpy")
    assert type(result[1].x) is np.ndarray


def test_objects_without_tensors_pass_in_silence():
    class Empty(Box):
        pass

    class Metaclass(type):
        shared = torch.ones(2)

    class WithClassAttribute(metaclass=Metaclass):
        values = torch.ones(2)

    enclosed = torch.ones(2)

    def function():
        return enclosed

    def catch(x):
        try:
            raise OSError
        except OSError as error:
            return error

    logger = logging.getLogger("tensorferry.test")
    handler = logging.NullHandler()
    handler.last = torch.ones(2)
    logger.addHandler(handler)
    itself = Empty(None)
    itself.values = {"me": [itself]}
    leaves = [
        itself,
        Empty(list(range(1000))),
        Empty(Empty(Empty({1, 2}))),
        Empty(logger),
        Empty(function),
        Empty(torch),
        Empty(torch.nn.Linear),
        Empty(np.random.default_rng(0)),
        Empty(weakref.ref(T)),
        logger,
        function,
        Box(torch.ones(2)).__init__,
        catch(torch.ones(2)),
        {1, 2},
        {"a": 1}.values(),
        (number for number in [1]),
        Empty(3),
        Empty([]),
        Empty([1, 2]),
        Empty(np.float32(3)),
        Empty(np.array([object()])),
        Empty(np.array(["a"])),
        Empty(pd.Series(["a"])),
        Empty(pd.Index(["a"])),
        Empty(xr.DataArray(["a"])),
        WithClassAttribute(),
        WithClassAttribute,
        types.ModuleType("m"),
        torch.nn.ReLU(),
        np.random.default_rng(0),
    ]
    result = ferry.to([*leaves, np.ones(3)], "torch")
    assert all(one is other for one, other in zip(result, leaves, strict=False))
    assert ferry.plan([*leaves, np.ones(3)], "torch").notes == []


def test_a_tree_of_nothing_else_is_refused_with_the_way_to_open_it():
    class Alone(Box):
        pass

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


@pytest.mark.parametrize(
    "leaf", [{T}, {"a": T}.values(), iter([T]), torch.nn.ParameterDict({"a": T})]
)
def test_the_hint_for_a_leaf(leaf):
    error = refused(ferry.NotATensorError, TypeError, lambda: ferry.to([leaf], "numpy"))
    result = ferry.to(follow(error, x=leaf), "numpy")
    (values,) = result.values() if isinstance(result, dict) else result
    assert values.tolist() == [1, 1]
