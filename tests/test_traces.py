"""A trace says what the plan said: for random dense, sparse and Arrow inputs, and trees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from arrow.random_columns import columns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.experimental import sparse as jax_sparse
from matrix.test_round_trips import arrays
from support import sparse_cases as cases
from support.images import images
from support.introspect import x64
from support.markup import Checked

import tensorferry as ferry
from tensorferry import _native, arrow, sparse

EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TARGETS = st.sampled_from(("numpy", "torch", "jax", "tensorflow", "mlx"))


def said(plan: ferry.Plan) -> dict[str, Any]:
    """What a plan says, but for its place in a tree and for the speed of the machine."""
    told = plan.as_dict()
    for one in (told, *told["parts"]):
        del one["name"], one["expected_seconds"]
    return told


def check(plan: Callable[[], ferry.Plan], convert: Callable[[], Any]) -> None:
    """The trace of a conversion has the plans that it said, or both are refused."""
    try:
        planned = plan()
    except ferry.FerryError as error:
        with ferry.trace() as trips, pytest.raises(type(error)):
            convert()
        return
    with ferry.trace() as trips:
        result = convert()
        if isinstance(result, ferry.Job):
            result.result()
    parts = planned.parts if planned.kind == "tree" else [planned]
    assert [said(trip.plan) for trip in trips] == [said(part) for part in parts]
    assert [(trip.shares, trip.bytes_moved) for trip in trips] == [
        (part.shares, part.bytes_moved) for part in parts
    ]
    assert all(trip.seconds > 0 for trip in trips)
    assert str(trips).startswith(f"{len(parts)} conversion")


def carried(made: tuple[Any, np.ndarray], framework: str) -> Any:
    """The array as a tensor of a framework that has its type."""
    try:
        return ferry.to(made[1], framework)
    except ferry.UnsupportedDTypeError:
        return made[1]


@st.composite
def sparse_tensors(draw: st.DrawFn, kinds: tuple[str, ...] = cases.SOURCES) -> Any:
    """A sparse tensor of any framework and format."""
    kind = draw(st.sampled_from(kinds))
    places = st.tuples(st.integers(0, 3), st.integers(0, 5))
    elements = draw(st.lists(st.tuples(places, st.integers(1, 5)), max_size=6))
    dtypes = ("float32", "int32") if kind.startswith("jax") else ("float32", "float64", "int64")
    indices = ("int32",) if kind.startswith("jax") else ("int32", "int64")
    case = ((4, 6), elements)
    return cases.make(kind, case, draw(st.sampled_from(dtypes)), draw(st.sampled_from(indices)))


CONJUGATED = torch.ones(2, 3, dtype=torch.complex64).conj()
SCALARS = (np.float32(0.5), np.int64(3), np.bool_(True), np.complex64(1j))
dense = st.one_of(
    st.builds(carried, arrays(), st.sampled_from(("numpy", "torch", "jax", "tensorflow"))),
    st.sampled_from((CONJUGATED, CONJUGATED.imag, CONJUGATED.T)),
    images(),
    st.sampled_from((*SCALARS, b"bytes", bytearray(b"more"), memoryview(b"view"))),
)
tables = st.one_of(
    columns(flat=True).map(lambda column: column.chunks),
    st.lists(columns(rows=4, flat=True), min_size=1, max_size=3).map(
        lambda made: pa.table({str(n): column.chunks for n, column in enumerate(made)})
    ),
    st.sampled_from(("int8", "float64", "bool", "Int64", "category")).map(
        lambda dtype: pd.DataFrame({"a": pd.Series([1, 0, 1], dtype=dtype), "b": [1.0, 2.0, 3.0]})
    ),
)
leaves = st.one_of(dense, dense, tables, sparse_tensors(), st.just(3), st.none())
trees = st.recursive(
    leaves,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from("abc"), below, max_size=3),
        # One object twice is converted once.
        below.map(lambda x: (x, x)),
    ),
    max_leaves=6,
)
options = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(("float32", "float16", "int32", "default")),
        "copy": st.booleans(),
        "writable": st.booleans(),
        "device": st.just("cpu"),
    },
)


@pytest.mark.parametrize("is_x64", [True, False])
@EXAMPLES
@given(trees, TARGETS, options)
def test_any_tree(is_x64: bool, tree: Any, target: str, given: dict[str, Any]) -> None:
    with x64(is_x64):
        check(lambda: ferry.plan(tree, target, **given), lambda: ferry.to(tree, target, **given))


@EXAMPLES
@given(st.one_of(dense, tables, st.lists(st.one_of(dense, tables))), TARGETS, options)
def test_any_asynchronous_conversion(x: Any, target: str, given: dict[str, Any]) -> None:
    check(lambda: ferry.plan(x, target, **given), lambda: ferry.to_async(x, target, **given))


@contextmanager
def sparse_engine(is_framework: bool) -> Iterator[None]:
    """Whether a framework processes the elements, as on a GPU, or the code for the host."""
    _native._sparse_use_framework_engine(is_framework)
    try:
        yield
    finally:
        _native._sparse_use_framework_engine(False)


@pytest.mark.parametrize("by_framework", [True, False], ids=["framework", "host"])
@EXAMPLES
@given(sparse_tensors(), st.sampled_from(cases.TARGETS), options)
def test_any_sparse_tensor(by_framework: bool, x: Any, target: str, given: dict[str, Any]) -> None:
    framework, form = target.split()
    given |= {"format": form, "blocksize": cases.BLOCK if form == "bsr" else None}
    with sparse_engine(by_framework):
        check(lambda: sparse.plan(x, framework, **given), lambda: sparse.to(x, framework, **given))


@pytest.mark.parametrize("by_framework", [True, False], ids=["framework", "host"])
@EXAMPLES
@given(sparse_tensors(), TARGETS, options)
def test_any_sparse_tensor_made_dense(
    by_framework: bool, x: Any, target: str, given: dict[str, Any]
) -> None:
    with sparse_engine(by_framework):
        check(
            lambda: sparse.plan(x, target, dense=True, **given),
            lambda: sparse.to_dense(x, target, **given),
        )


arrow_options = st.fixed_dictionaries(
    {
        "nulls": st.sampled_from(("error", "mask", "nan", 0)),
        "ragged": st.sampled_from(("error", "dense", "offsets", "native")),
        "dictionary": st.sampled_from(("decode", "codes")),
        "temporal": st.sampled_from(("error", "integer")),
        "stack": st.booleans(),
    },
    optional={"dtype": st.just("float32"), "copy": st.booleans(), "pad": st.just(0)},
)
columns_of_lists = columns().map(lambda column: column.chunks)


@EXAMPLES
@given(st.one_of(columns_of_lists, tables), TARGETS, arrow_options)
def test_any_column_and_table(x: Any, target: str, given: dict[str, Any]) -> None:
    check(lambda: arrow.plan(x, target, **given), lambda: arrow.to(x, target, **given))


def test_sparse_tensors_are_one_trip_each() -> None:
    x = cases.make("scipy csr", "plain")
    with ferry.trace() as trips:
        for n in range(1, 5):
            sparse.to(x * n, "torch", format="coo")
        ferry.to({"a": x, "b": [np.ones(2)]}, "torch")
    kinds = [(trip.plan.kind, trip.shares) for trip in trips]
    assert kinds == [("sparse", False)] * 4 + [("sparse", True), ("tensor", True)]
    assert trips[0].bytes_moved == sparse.plan(x, "torch", format="coo").bytes_moved > 0
    # Equal conversions share a row.
    text = str(trips)
    assert text.count("scipy csr -> torch coo: 1 of 2 arrays shared") == 1
    assert "4 conversions, " in text
    page = Checked(trips._repr_html_())
    assert page.counts["details"] == 1
    for trip in trips:
        assert f"{trip.plan!r}".strip("<>").removeprefix("Plan ") in str(trip)
        assert "it took" in Checked(trip._repr_html_()).text


def test_scalars_are_carried_alike_at_every_address() -> None:
    actions = {"numpy": "share", "torch": "share", "jax": "copy", "tensorflow": "copy"}
    for number in range(200):
        kept = [np.empty(1, "i1") for _ in range(number % 4)]
        for target, action in actions.items():
            for scalar in (np.int8(number % 100), np.float32(number)):
                plan = ferry.plan(scalar, target)
                kept.append(np.empty(1, "i1"))
                with ferry.trace() as trips:
                    assert float(ferry.to(scalar, target)) == scalar
                assert [plan.action] == [trip.plan.action for trip in trips] == [action]


def test_traced_values_are_trips() -> None:
    found = []

    def body(x: Any, m: Any) -> Any:
        for one in (x, [x], m):
            plan = ferry.plan(one, "jax")
            for convert in (ferry.to, ferry.to_async) if one is not m else (ferry.to,):
                with ferry.trace() as trips:
                    convert(one, "jax")
                parts = plan.parts if plan.kind == "tree" else [plan]
                found.append([said(trip.plan) for trip in trips] == [said(p) for p in parts])
                assert [trip.plan.action for trip in trips] == ["itself"]
        return x

    jax.jit(body)(jnp.ones(2), jax_sparse.BCOO.fromdense(jnp.eye(3)))
    assert found == [True] * 5


class Slow:
    """An array that is made while a job is submitted."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        begun_at = perf_counter()
        made = np.arange(1000.0)
        self.seconds = perf_counter() - begun_at
        return made


def test_the_time_of_a_job_begins_with_its_submission() -> None:
    x = Slow()
    begun_at = perf_counter()
    with ferry.trace() as trips:
        ferry.to_async([x, np.ones(3)], "torch", copy=True).result()
    whole = perf_counter() - begun_at
    assert len(trips) == 2
    for trip in trips:
        assert x.seconds <= trip.seconds <= whole


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table])
def test_a_table_of_a_job_is_converted_once(make: Callable[[Any], Any]) -> None:
    tree = [make({"a": [1, 0, 1], "b": [1.0, 2.0, 3.0]}), np.ones(2)]
    plan = ferry.plan(tree, "torch", copy=True)
    for convert in (
        lambda: ferry.to_async(tree, "torch", copy=True).result(),
        lambda: list(ferry.feed([tree], "torch", copy=True)),
    ):
        with ferry.trace() as trips:
            convert()
        assert [said(trip.plan) for trip in trips] == [said(part) for part in plan.parts]
