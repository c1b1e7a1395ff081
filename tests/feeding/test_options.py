"""`dtype` and `device`: one value for the whole batch, or a tree with its upper structure."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.feeding import Pair
from support.introspect import check_tensor
from support.refusals import fact_and_hint

import tensorferry as ferry


@dataclasses.dataclass
class Sample:
    x: Any
    y: Any


def array() -> np.ndarray:
    return np.arange(4, dtype=np.int16)


def one(batch: Any, framework: str = "torch", **options: Any) -> Any:
    """A batch after a feed, from a loader of one batch."""
    (found,) = ferry.feed([batch], framework, **options)
    return found


def is_of(tensor: Any, dtype: Any) -> None:
    check_tensor("torch", tensor, array().astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", np.float32, torch.float32, np.dtype("f4")])
def test_one_type_for_all(dtype: Any) -> None:
    batch = one({"a": array(), "b": [array()], "n": 1}, dtype=dtype)
    is_of(batch["a"], np.float32)
    is_of(batch["b"][0], np.float32)
    assert batch["n"] == 1


OPTIONS = {
    "dict": ({"x": array(), "y": array()}, {"x": "float32", "y": "int64"}),
    "dict in another order": ({"x": array(), "y": array()}, {"y": "int64", "x": "float32"}),
    "tuple": ((array(), array()), ("float32", "int64")),
    "list for a tuple": ((array(), array()), ["float32", "int64"]),
    "tuple for a list": ([array(), array()], ("float32", "int64")),
    "named tuple": (Pair(array(), array()), Pair("float32", "int64")),
    "tuple for a named tuple": (Pair(array(), array()), ("float32", "int64")),
    "dict for a named tuple": (Pair(array(), array()), {"x": "float32", "y": "int64"}),
    "dataclass": (Sample(array(), array()), Sample("float32", "int64")),
    "dict for a dataclass": (Sample(array(), array()), {"x": "float32", "y": "int64"}),
    "UserDict": (
        collections.UserDict(x=array(), y=array()),
        {"x": "float32", "y": "int64"},
    ),
    "OrderedDict": (
        collections.OrderedDict(x=array(), y=array()),
        {"x": "float32", "y": "int64"},
    ),
}


@pytest.mark.parametrize("is_stable", [True, False], ids=["list", "generator"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_type_for_each_part(name: str, is_stable: bool) -> None:
    batch, dtype = OPTIONS[name]
    loader = [batch] if is_stable else (batch for _ in range(1))
    (found,) = ferry.feed(loader, "torch", dtype=dtype)
    assert type(found) is type(batch)
    if isinstance(found, (dict, collections.UserDict)):
        x, y = found["x"], found["y"]
    elif isinstance(found, Sample):
        x, y = found.x, found.y
    else:
        x, y = found
    is_of(x, np.float32)
    is_of(y, np.int64)


def test_a_value_is_for_everything_below() -> None:
    given = {"inputs": [array(), {"mask": array()}], "targets": (array(), array())}
    batch = one(given, dtype={"inputs": "float32", "targets": (None, "int64")})
    is_of(batch["inputs"][0], np.float32)
    is_of(batch["inputs"][1]["mask"], np.float32)
    is_of(batch["targets"][0], np.int16)
    is_of(batch["targets"][1], np.int64)


def test_none_changes_nothing() -> None:
    x, y = one((array(), array()), dtype=(None, "float32"))
    is_of(x, np.int16)
    is_of(y, np.float32)
    is_of(one(array(), dtype=None), np.int16)


def test_values_for_parts_that_are_not_tensors() -> None:
    """A value may stand where the batch has a number: the number passes."""
    batch = one(
        {"x": array(), "n": 3, "name": None}, dtype={"x": "float32", "n": "int8", "name": "int8"}
    )
    is_of(batch["x"], np.float32)
    assert (batch["n"], batch["name"]) == (3, None)


def test_one_object_with_two_types() -> None:
    x = array()
    first, second, third = one((x, x, x), dtype=("float32", None, "int64"))
    is_of(first, np.float32)
    is_of(second, np.int16)
    is_of(third, np.int64)
    shared = [x]
    first, second = one((shared, shared), dtype=("float32", "int64"))
    is_of(first[0], np.float32)
    is_of(second[0], np.int64)
    assert shared[0] is x


def test_one_object_with_one_type_stays_one() -> None:
    x = array()
    first, second = one((x, x), dtype="float32")
    assert first is second


def test_devices() -> None:
    x, y = one((array(), array()), "jax", device=(None, "cpu"))
    assert x.devices() == y.devices() == {jax.devices("cpu")[0]}
    batch = one({"x": array()}, "torch", device={"x": torch.device("cpu")}, dtype={"x": "float32"})
    is_of(batch["x"], np.float32)
    with pytest.raises(ferry.UnsupportedError) as caught:
        one({"x": array(), "y": array()}, device={"x": None, "y": "cpu:7"})
    fact, _ = fact_and_hint(caught.value)
    assert fact.startswith("at ['y']"), fact


def test_device_and_dtype_of_different_depths() -> None:
    given = {"a": [array(), array()], "b": array()}
    batch = one(given, device={"a": "cpu", "b": None}, dtype={"a": ["float32", None], "b": "int64"})
    is_of(batch["a"][0], np.float32)
    is_of(batch["a"][1], np.int16)
    is_of(batch["b"], np.int64)


def test_sparse_tensors_have_types_too() -> None:
    eye = scipy.sparse.eye_array(3, dtype=np.float32).tocsr()
    batch = one({"m": eye, "x": array()}, dtype={"m": "float64", "x": None})
    assert batch["m"].dtype == torch.float64
    assert batch["m"].layout == torch.sparse_csr
    is_of(batch["x"], np.int16)


def test_a_table_is_a_dict_of_columns() -> None:
    batch = one(pa.table({"x": array(), "y": array()}), dtype={"x": "float32", "y": None})
    is_of(batch["x"], np.float32)
    is_of(batch["y"], np.int16)


def test_a_tuple_for_the_outermost_list() -> None:
    given = [[array(), [array()]], (array(), [array()]), Pair(array(), 1), {"x": [array()]}]
    batches = ferry.feed(given, "torch", batch_type=tuple)
    for _ in range(2):
        kinds = [(type(batch), [type(part) for part in batch]) for batch in batches]
        assert kinds == [
            (tuple, [torch.Tensor, list]),
            (tuple, [torch.Tensor, list]),
            (Pair, [torch.Tensor, int]),
            (dict, [str]),
        ]
    x, (y,) = one([array(), [array()]], dtype=["float32", None], batch_type=tuple)
    is_of(x, np.float32)
    is_of(y, np.int16)
    assert type(one([array()])) is list


@pytest.mark.parametrize("kind", [list, dict, Pair, "tuple", (), True])
def test_other_types_of_batches_are_refused(kind: Any) -> None:
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.feed([array()], "torch", batch_type=kind)
    fact, hint = fact_and_hint(caught.value)
    assert repr(kind) in fact
    assert "batch_type=tuple" in hint


MISMATCHES = {
    "tuple for a dict": ({"x": array()}, ("float32",)),
    "tuple for a tensor": (array(), ("float32",)),
    "dict for a tensor": (array(), {"x": "float32"}),
    "dict for a tuple": ((array(),), {"x": "float32"}),
    "shorter": ((array(), array()), ("float32",)),
    "longer": ((array(),), ("float32", None)),
    "an entry is absent": ({"x": array(), "y": array()}, {"x": "float32"}),
    "an entry too much": ({"x": array()}, {"x": "float32", "y": None}),
    "below": ({"x": [array()]}, {"x": ["float32", None]}),
    "for a number": ((array(), 3), (None, ("float32",))),
    "for None": ((array(), None), (None, {"x": "float32"})),
    "for a string": ((array(), "ab"), (None, ("float32", "float32"))),
    "field": (Pair(array(), array()), {"x": "float32"}),
    "named tuple for a tuple": ((array(), array()), Pair("float32", None)),
    "tuple for a dataclass": (Sample(array(), array()), ("float32", None)),
}


@pytest.mark.parametrize("option", ["dtype", "device"])
@pytest.mark.parametrize("name", MISMATCHES)
def test_mismatches_are_refused_at_the_batch(name: str, option: str) -> None:
    batch, value = MISMATCHES[name]
    if option == "device":
        value = as_devices(value)
    fitting = ferry.feed([batch], "torch")
    assert len(list(fitting)) == 1
    epoch = iter(ferry.feed([batch, batch], "torch", **{option: value}))
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        next(epoch)
    fact, hint = fact_and_hint(caught.value)
    assert fact.startswith(option), fact
    assert "None" in hint
    assert next(epoch, "the end") == "the end"


def as_devices(value: Any) -> Any:
    """The tree with "cpu" for each type."""
    if isinstance(value, dict):
        return {key: as_devices(below) for key, below in value.items()}
    if isinstance(value, Pair):
        return Pair(as_devices(value.x), as_devices(value.y))
    if isinstance(value, (list, tuple)):
        return type(value)(as_devices(below) for below in value)
    return value and "cpu"


def test_a_mismatch_names_the_later_batch() -> None:
    """A batch of another structure fails alone, after those that fit."""
    epoch = iter(ferry.feed([(array(), array()), [array()]], "torch", dtype=("float32", None)))
    is_of(next(epoch)[0], np.float32)
    with pytest.raises(ferry.InvalidArgumentError, match="2 entries, and the batch has 1"):
        next(epoch)


types = st.sampled_from([None, "float32", "int32", "uint8"])


@st.composite
def batches_with_types(draw: st.DrawFn, depth: int = 3) -> tuple[Any, Any, Any]:
    """A batch, a prefix tree of types, and what the batch is afterwards."""
    kind = draw(
        st.sampled_from(["tensor", "number", "list", "dict", "pair"] if depth else ["tensor"])
    )
    if kind == "tensor":
        dtype, values = draw(types), array()
        return values, dtype, values if dtype is None else values.astype(dtype)
    if kind == "number":
        return 3, draw(types), 3
    below = [draw(batches_with_types(depth=depth - 1)) for _ in range(2)]
    make = {"dict": lambda a, b: {"a": a, "b": b}, "pair": Pair, "list": lambda a, b: [a, b]}[kind]
    batch, dtype, expected = (make(*parts) for parts in zip(*below, strict=True))
    return batch, dtype, expected


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        check_tensor("torch", found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_equal(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        for pair in zip(found, expected, strict=True):
            assert_equal(*pair)
    else:
        assert found == expected


@settings(max_examples=60, deadline=None)
@given(batches_with_types())
def test_random_trees(case: tuple[Any, Any, Any]) -> None:
    batch, dtype, expected = case
    # Beside a tensor, because a feed refuses a number alone.
    assert_equal(one((array(), batch), dtype=(None, dtype)), (array(), expected))


def test_options_that_contain_themselves_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ferry.InvalidArgumentError, match="nested more than 100 levels"):
        ferry.feed([np.ones(1)], "torch", dtype=endless)


def test_a_mismatch_names_the_part() -> None:
    batch = {"p": [np.ones(1), {"q": np.ones(1)}]}
    with pytest.raises(ferry.InvalidArgumentError, match=r'dtype\["p"\]\[1\] lacks the entry "q"'):
        list(ferry.feed([batch], "torch", dtype={"p": [None, {"r": None}]}))
