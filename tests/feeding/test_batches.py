"""What arrives: the batches of the loader, in order, each as `ferry.to` converts it."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import tensorflow as tf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.feeding import Pair, Steps, feeders
from support.images import images
from support.introspect import FRAMEWORKS, TYPES
from support.introspect import check_tensor as check
from support.refusals import fact_and_hint
from support.share_counts import soon
from torch.utils.data import DataLoader

import tensorferry as ferry

MAKERS = {
    "numpy": np.array,
    "torch": lambda array: torch.from_numpy(array.copy()),
    "jax": jnp.array,
    "tensorflow": tf.constant,
}


@dataclasses.dataclass
class Sample:
    x: Any
    y: Any
    name: str = "sample"


def image(number: int, rows: int = 4) -> np.ndarray:
    return np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) + number


def label(number: int, rows: int = 4) -> np.ndarray:
    return np.full(rows, number, np.int32)


CONTAINERS = {
    "dict": lambda x, y: {"x": x, "y": y},
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "named tuple": Pair,
    "dataclass": Sample,
    "UserDict": lambda x, y: collections.UserDict(x=x, y=y),
    "OrderedDict": lambda x, y: collections.OrderedDict(x=x, y=y),
    "nested": lambda x, y: {"inputs": [{"x": x}], "targets": (Pair(y, None),)},
}


def leaves(batch: Any) -> list[Any]:
    """The tensors of a batch that a container above made."""
    if isinstance(batch, (dict, collections.UserDict)):
        return [leaf for value in batch.values() for leaf in leaves(value)]
    if isinstance(batch, (list, tuple)):
        return [leaf for value in batch for leaf in leaves(value)]
    if dataclasses.is_dataclass(batch):
        return leaves([batch.x, batch.y])
    return [] if batch is None else [batch]


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", MAKERS)
def test_every_framework(source: str, target: str) -> None:
    make = MAKERS[source]
    batches = [(make(image(number)), make(label(number))) for number in range(4)]
    found = list(ferry.feed(batches, target))
    assert len(found) == 4
    for number, (x, y) in enumerate(found):
        check(target, x, image(number))
        check(target, y, label(number))


def test_one_tensor_is_a_batch() -> None:
    for number, batch in enumerate(ferry.feed([image(0), image(1)], "torch")):
        check("torch", batch, image(number))


@pytest.mark.parametrize("is_stable", [True, False], ids=["list", "generator"])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_containers_keep_their_types(kind: str, is_stable: bool) -> None:
    make = CONTAINERS[kind]
    batches = [make(image(number), label(number)) for number in range(3)]
    loader = batches if is_stable else (batch for batch in batches)
    for number, batch in enumerate(ferry.feed(loader, "jax", device="cpu")):
        assert type(batch) is type(batches[number])
        x, y = leaves(batch)
        check("jax", x, image(number))
        check("jax", y, label(number))
        # The batch of the loader is as it was.
        assert all(isinstance(leaf, np.ndarray) for leaf in leaves(batches[number]))


def test_other_leaves_pass() -> None:
    unknown = object()
    given = {
        "x": image(0),
        "n": 3,
        "f": 0.5,
        "s": "text",
        "b": b"bytes",
        "none": None,
        "o": unknown,
    }
    (batch,) = ferry.feed([given], "torch", dtype="float64")
    check("torch", batch["x"], image(0).astype(np.float64))
    for key in ("n", "f", "s", "b", "none", "o"):
        assert batch[key] is given[key], key


EMPTY = [{}, [], ((), [None])]


@pytest.mark.parametrize("given", EMPTY, ids=repr)
def test_empty_trees_pass(given: Any) -> None:
    feed = ferry.feed([given, given], "torch")
    assert list(feed) == [given, given]
    assert (feed.stats().batches, feed.stats().bytes) == (2, 0)


WITHOUT_TENSORS: list[Any] = [3, "text", None, [1, 2], {"a": [1, "b"], "n": None}, object()]
WITHOUT_TENSORS += [[np.float32(1)], [b"bytes"], np.array(["a"]), (3, np.array(["a"]))]
WITHOUT_TENSORS += [[np.array([None])], np.str_("a")]


MAKE_LOADER = {
    "list": list,
    "iterator": iter,
    "DataLoader": lambda batches: DataLoader(batches, None, collate_fn=lambda batch: batch),
}


@pytest.mark.parametrize("make", MAKE_LOADER.values(), ids=MAKE_LOADER)
@pytest.mark.parametrize("given", WITHOUT_TENSORS)
def test_batches_without_tensors_are_refused(given: Any, make: Any) -> None:
    """As `to` refuses them, with the number of the batch."""
    with pytest.raises(ferry.FerryError) as expected:
        ferry.to(given, "torch")
    for before in range(2):
        epoch = iter(ferry.feed(make([image(0)] * before + [given, image(1)]), "torch"))
        assert len([next(epoch) for _ in range(before)]) == before
        with pytest.raises(type(expected.value)) as caught:
            next(epoch)
        assert str(caught.value) == f"batch {before}: {expected.value}"
        assert list(epoch) == []


@pytest.mark.parametrize("given", [np.float32(0.5), np.int64(3), b"bytes"])
def test_numpy_scalars_and_bytes_are_batches(given: Any) -> None:
    """As arguments of `to` they are tensors, and leaves in a tree."""
    for make in (list, iter):
        (batch,) = ferry.feed(make([given]), "torch")
        expected = ferry.to(given, "torch")
        assert (batch.dtype, batch.tolist()) == (expected.dtype, expected.tolist())


def test_tables_are_batches() -> None:
    columns = {"x": np.arange(5, dtype=np.float32), "y": np.arange(5)}
    batches = [pa.table(columns), pd.DataFrame(columns), pa.table(columns).to_batches()[0]]
    found = list(ferry.feed(batches, "torch"))
    assert len(found) == 3
    for batch, table in zip(found, batches, strict=True):
        assert type(batch) is type(ferry.to(table, "torch"))
        for name, values in columns.items():
            check("torch", batch[name], values)


def test_tables_inside_a_batch() -> None:
    table = pa.table({"a": np.arange(3)})
    (batch,) = ferry.feed([{"table": table, "x": image(0)}], "numpy", copy=True)
    check("numpy", batch["table"]["a"], np.arange(3))
    check("numpy", batch["x"], image(0))


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_sparse_tensors(target: str) -> None:
    matrix = scipy.sparse.random(6, 5, 0.4, "csr", dtype=np.float32, random_state=0)
    batches = [{"m": matrix * number, "n": number} for number in range(3)]
    for number, batch in enumerate(ferry.feed(batches, target)):
        assert type(batch["m"]) is type(ferry.to(matrix, target))
        back = ferry.to(batch["m"], "scipy").toarray()
        np.testing.assert_array_equal(back, (matrix * number).toarray())
        assert batch["n"] == number


def test_the_last_batch_may_be_smaller() -> None:
    rows = [4, 4, 4, 1]
    for target in ("torch", "jax"):
        loader = ((image(number, count), label(number, count)) for number, count in enumerate(rows))
        found = list(ferry.feed(loader, target))
        assert [len(x) for x, _ in found] == rows
        check(target, found[-1][1], label(3, 1))


def test_empty_batches_and_no_batches() -> None:
    assert list(ferry.feed([], "torch")) == []
    (batch,) = ferry.feed([np.empty((0, 3), np.float32)], "torch")
    check("torch", batch, np.empty((0, 3), np.float32))


def test_the_order_is_that_of_the_loader() -> None:
    """Batches of very different sizes, whose copies take very different times."""
    sizes = [1 << 20, 1, 1 << 16, 3, 1 << 18, 2] * 5
    for prefetch in (1, 2, 7):
        loader = (np.full(size, number) for number, size in enumerate(sizes))
        found = [
            (int(batch[0]), len(batch)) for batch in ferry.feed(loader, "torch", prefetch=prefetch)
        ]
        assert found == list(enumerate(sizes))


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_the_loader_is_asked_for_no_more_than_prefetch(prefetch: int) -> None:
    """Each batch that the consumer takes lets the feeder ask for one more."""
    total = prefetch + 6
    steps = Steps(image(number) for number in range(total))
    epoch = iter(ferry.feed(steps, "torch", prefetch=prefetch))
    steps.allow(total + 1)
    queue = epoch._queue
    for taken in range(total):
        most = min(taken + prefetch, total)
        # At the bound the feeder waits; at the end it has asked once more, for the end.
        steps.wait_for_requests(most)
        assert soon(lambda most=most: is_idle(queue) or steps.requests > most), "the feeder runs"
        if most < total:
            assert steps.requests == most
        check("torch", next(epoch), image(taken))
    with pytest.raises(StopIteration):
        next(epoch)
    assert steps.requests == total + 1


def is_idle(queue: Any) -> bool:
    """Whether the queue is full and the feeder waits for room."""
    with queue._changed:
        waiters = len(queue._changed._waiters)
        return waiters > 0 and len(queue._entries) >= queue._prefetch


def test_conversions_run_while_the_consumer_works() -> None:
    """The second batch is asked for before the first is asked for by the consumer."""
    steps = Steps([image(0), image(1)])
    steps.allow(2)
    epoch = iter(ferry.feed(steps, "torch", prefetch=2))
    steps.wait_for_requests(2)
    steps.allow()
    check("torch", next(epoch), image(0))


tensors = st.builds(
    lambda shape, dtype, seed: np.random.default_rng(seed).integers(0, 100, shape).astype(dtype),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from([np.float32, np.int32, np.uint8, np.bool_, np.dtype(">f4")]),
    st.integers(0, 99),
) | st.binary(max_size=9).map(lambda raw: np.frombuffer(bytearray(raw), np.bool_))
scalars = st.sampled_from([np.float32(0.5), np.int8(3), np.bool_(True), np.complex64(1j)])
others = st.one_of(
    *(st.none(), st.integers(), st.text(max_size=3), st.floats(allow_nan=False), scalars)
)
trees = st.recursive(
    st.one_of(tensors, images(), others),
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.lists(below, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), below, max_size=3),
        st.builds(Pair, below, below),
    ),
    max_leaves=8,
)


def assert_same(found: Any, expected: Any) -> None:
    """Equal types, tensors and other leaves."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, tuple(TYPES[name] for name in ("numpy", "torch", "jax"))):
        assert (found.dtype, tuple(found.shape)) == (expected.dtype, tuple(expected.shape))
        assert ferry.to(found, "numpy").tobytes() == ferry.to(expected, "numpy").tobytes()
    else:
        assert found == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(trees, max_size=4),
    st.sampled_from(["numpy", "torch", "jax"]),
    st.sampled_from([None, "float32", "int32"]),
    st.integers(1, 3),
    st.booleans(),
)
def test_random_batches(
    batches: list[Any], target: str, dtype: str | None, prefetch: int, is_stable: bool
) -> None:
    loader = batches if is_stable else (batch for batch in batches)
    epoch = iter(ferry.feed(loader, target, dtype=dtype, prefetch=prefetch))
    for number, batch in enumerate(batches):
        # Memory that the loader may write again is copied, into the byte order of the machine.
        copy = None if is_stable else True
        try:
            expected = ferry.to(batch, target, dtype=dtype, copy=copy)
        except ferry.NotATensorError as error:
            with pytest.raises(ferry.NotATensorError, match=re.escape(f"batch {number}: {error}")):
                next(epoch)
            break
        assert_same(next(epoch), expected)
    assert list(epoch) == []


INVALID = {
    "loader": lambda: ferry.feed(3, "torch"),
    "framework": lambda: ferry.feed([], "nonesuch"),
    "prefetch 0": lambda: ferry.feed([], "torch", prefetch=0),
    "prefetch bool": lambda: ferry.feed([], "torch", prefetch=True),
    "prefetch float": lambda: ferry.feed([], "torch", prefetch=2.0),
    "copy": lambda: ferry.feed([], "torch", copy="yes"),
    "dtype": lambda: ferry.feed([], "torch", dtype="float33"),
    "dtype below": lambda: ferry.feed([], "torch", dtype={"a": ("float32", "float33")}),
    "device": lambda: ferry.feed([], "torch", device="nonesuch"),
    "device below": lambda: ferry.feed([], "torch", device=[None, "nonesuch"]),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments_are_refused_at_once(name: str) -> None:
    with pytest.raises(ferry.FerryError) as caught:
        INVALID[name]()
    fact_and_hint(caught.value)
    assert not feeders()


def test_unknown_keywords() -> None:
    with pytest.raises(TypeError):
        ferry.feed([], "torch", workers=3)


@pytest.mark.parametrize("make", [list, iter])
def test_arrays_of_text_and_objects_pass(make: Any) -> None:
    """They are not tensors. What a loader may write again is copied."""
    names = np.array(["a", "b"])
    things = np.array([{"k": 1}, None], object)
    ((x, y, z),) = list(ferry.feed(make([(names, things, np.ones(2))]), "torch"))
    assert x.tolist() == ["a", "b"]
    assert y.tolist() == [{"k": 1}, None]
    assert z.tolist() == [1, 1]
    assert (x is names) == (make is list)
