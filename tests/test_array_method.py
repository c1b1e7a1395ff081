"""Objects that convert themselves through `__array__`: what is shared, converted and refused."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from matrix.check import said
from support.introspect import FRAMEWORKS, INSPECTORS, TYPES, x64
from support.refusals import refused, refused_everywhere

import tensorferry as ferry

# float64 holds 2**53 and 2**53 + 2, and not the number between them.
VALUES = np.array([[2**53 + 1, -1, 0], [7, -(2**53) - 1, 2**62 + 1]], np.int64)
STEP = ("convert", "converted by its own library")
UNREAD = "known when its library reads it"


class Object:
    """Keeps an array, and counts how it is asked for it."""

    def __init__(self, array: np.ndarray = VALUES) -> None:
        self.array = array.copy()
        self.asked: list[Any] = []
        #: Where the arrays that it made are.
        self.made: list[int] = []

    def fresh(self) -> np.ndarray:
        array = self.array.copy()
        self.made.append(array.__array_interface__["data"][0])
        return array


class Honest(Object):
    """Shares."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        return self.fresh() if copy else self.array


class View(Object):
    """Shares through a view that is new at each call."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        return self.array.T.T[:]


class ReadOnly(Object):
    """Shares memory that must not be written."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        view = self.array.view()
        view.flags.writeable = False
        return view


class Swallows(Object):
    """Takes any keyword, ignores it and shares."""

    def __array__(self, *arguments: Any, **keywords: Any) -> np.ndarray:
        self.asked.append(keywords.get("copy"))
        return self.array


SHARING = (Honest, View, ReadOnly, Swallows)


class Lazy(Object):
    """Says that it cannot share, as h5py does."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        if copy is False:
            raise ValueError("memory allocation cannot be avoided")
        return self.fresh()


class Raises(Lazy):
    """The same with another exception, as polars does."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            self.asked.append(copy)
            raise RuntimeError("copy not allowed")
        return super().__array__(dtype, copy)


class Ignores(Object):
    """Accepts copy=False and makes an array all the same, as xarray does."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        return self.fresh()


class IgnoresAndReshapes(Object):
    """The same with a view of what it made."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        return self.fresh().reshape(-1).reshape(self.array.shape)


class NoArguments(Object):
    """The oldest form, which makes an array."""

    def __array__(self) -> np.ndarray:
        self.asked.append(None)
        return self.fresh()


class TypeOnly(Object):
    """The form of NumPy 1, which makes an array."""

    def __array__(self, dtype: Any = None) -> np.ndarray:
        self.asked.append(None)
        return self.fresh()


class Stated:
    """States its type and shape."""

    array: np.ndarray
    dtype = property(lambda self: self.array.dtype)
    shape = property(lambda self: self.array.shape)


class StatedLazy(Stated, Lazy):
    """Can be planned without a conversion."""


class StatedTypeOnly(Stated, TypeOnly):
    """Can be planned without a conversion."""


class NamedLazy(Stated, Lazy):
    """Names its type in text, as Keras does."""

    dtype = property(lambda self: self.array.dtype.name)


CONVERTING = (
    Lazy,
    Raises,
    Ignores,
    IgnoresAndReshapes,
    NoArguments,
    TypeOnly,
    StatedLazy,
    StatedTypeOnly,
    NamedLazy,
)


class OldView(Object):
    """The oldest form, which returns memory that it keeps and does not say so."""

    def __array__(self) -> np.ndarray:
        self.asked.append(None)
        return self.array


class Caches(Object):
    """Makes an array at the first call and keeps it."""

    kept: np.ndarray | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        if copy is False:
            raise ValueError("not yet")
        if self.kept is None:
            self.kept = self.fresh()
        return self.kept


class CachesWeakly(Object):
    """Makes an array and keeps a weak reference, so that it can return it again."""

    kept: Callable[[], np.ndarray | None] = staticmethod(lambda: None)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.asked.append(copy)
        if copy is False:
            raise ValueError("not yet")
        array = self.kept()
        if array is None:
            array = self.fresh()
            self.kept = weakref.ref(array)
        return array


class ReadOnlyArray(Object):
    """Makes an array that is read-only."""

    def __array__(self, dtype: Any = None) -> np.ndarray:
        self.asked.append(None)
        array = self.fresh()
        array.flags.writeable = False
        return array


VISIBLE = (OldView, Caches, CachesWeakly, ReadOnlyArray)


@pytest.fixture(autouse=True)
def x64_enabled():
    with x64(True):
        yield


def carried(source: Any, target: str, **options: Any) -> tuple[Any, ferry.Plan]:
    """The result, and its plan: that of the trip where only a conversion tells the type."""
    plan = ferry.plan(source, target, **options)
    with ferry.trace() as trips:
        result = ferry.to(source, target, **options)
    if plan.source_dtype == "unknown":
        assert plan.action == "copy"
        assert UNREAD in str(plan)
        plan = trips[0].plan
    assert [said(trip.plan) for trip in trips] == [said(plan)]
    assert isinstance(result, TYPES[target])
    assert plan.dtype == INSPECTORS[target].dtype(result)
    assert plan.shape == INSPECTORS[target].shape(result)
    return result, plan


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("kind", SHARING)
def test_memory_that_the_object_shares(kind: type[Object], target: str) -> None:
    thing = kind()
    result, plan = carried(thing, target)
    assert set(thing.asked) == {False}
    assert INSPECTORS[target].values(result) == VALUES.tobytes()
    address = thing.array.__array_interface__["data"][0]
    assert plan.shares == (INSPECTORS[target].address(result) == address)
    assert STEP not in plan.steps
    if target == "numpy":
        assert plan.shares
        assert result.flags.writeable == (kind is not ReadOnly)
        assert any("__array__(copy=False)" in note for note in plan.notes)
        again = ferry.to(thing, target, copy=False)
        assert again.__array_interface__["data"][0] == address
    if kind is ReadOnly and target in ("torch", "paddle"):
        assert not plan.shares
    result, plan = carried(thing, target, copy=True)
    assert not plan.shares
    assert INSPECTORS[target].address(result) != address
    assert INSPECTORS[target].values(result) == VALUES.tobytes()
    assert thing.array.tobytes() == VALUES.tobytes()


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("kind", CONVERTING)
def test_what_the_object_converts_is_a_copy(kind: type[Object], target: str) -> None:
    thing = kind()
    result, plan = carried(thing, target)
    assert plan.action == "copy"
    assert STEP in plan.steps
    assert plan.bytes_moved == VALUES.nbytes
    assert INSPECTORS[target].values(result) == VALUES.tobytes()
    assert plan.writable == (target in ("numpy", "torch", "paddle"))
    if target in ("numpy", "torch"):
        assert INSPECTORS[target].address(result) in thing.made, "it is copied a second time"
    if target == "numpy":
        assert result.flags.writeable
        result[...] = 0
        assert thing.array.tobytes() == VALUES.tobytes()
    error = refused(
        ferry.CopyRequiredError, ValueError, lambda: ferry.to(thing, target, copy=False)
    )
    assert f"array to {target} needs a copy: {STEP[1]}" in str(error)
    refused(ferry.CopyRequiredError, ValueError, lambda: ferry.plan(thing, target, copy=False))
    result, plan = carried(thing, target, copy=True)
    assert STEP in plan.steps
    assert INSPECTORS[target].values(result) == VALUES.tobytes()
    result, plan = carried(thing, target, dtype="int32")
    assert STEP in plan.steps
    assert INSPECTORS[target].values(result) == VALUES.astype(np.int32).tobytes()


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("kind", VISIBLE)
def test_a_conversion_that_others_may_see_is_copied(kind: type[Object], target: str) -> None:
    thing = kind()
    result, plan = carried(thing, target)
    assert plan.action == "copy"
    assert STEP in plan.steps
    assert INSPECTORS[target].values(result) == VALUES.tobytes()
    kept = {thing.array.__array_interface__["data"][0], *thing.made}
    if target in ("numpy", "torch"):
        assert INSPECTORS[target].address(result) not in kept
        result[0] = 0
    assert thing.array.tobytes() == VALUES.tobytes()
    refused(ferry.CopyRequiredError, ValueError, lambda: ferry.to(thing, target, copy=False))


@pytest.mark.parametrize("kind", [StatedLazy, NamedLazy])
def test_a_plan_of_a_stated_type_and_shape_converts_nothing(kind: type[Object]) -> None:
    thing = kind()
    plan = ferry.plan(thing, "torch")
    assert (plan.source, plan.source_dtype, plan.shape) == ("array", "int64", VALUES.shape)
    refused(ferry.CopyRequiredError, ValueError, lambda: ferry.to(thing, "torch", copy=False))
    refused(ferry.OutOfMemoryError, MemoryError, lambda: ferry.to(thing, "torch", budget=8))
    assert thing.asked == [False] * 3
    ferry.to(thing, "torch")
    assert thing.asked == [False] * 4 + [None], "it is converted once"


def test_types_of_the_other_byte_order() -> None:
    thing = StatedLazy(VALUES.astype(">i8"))
    for target in FRAMEWORKS:
        result, plan = carried(thing, target)
        assert STEP in plan.steps
        assert INSPECTORS[target].values(result) == VALUES.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,) * 30])
def test_shapes(shape: tuple[int, ...]) -> None:
    array = np.full(shape, 3, np.float32)
    for kind in (Honest, Ignores, StatedLazy, NoArguments):
        result, plan = carried(kind(array), "torch")
        assert plan.shape == tuple(result.shape) == shape
        assert result.numpy().tobytes() == array.tobytes()


class Widens(Lazy):
    """Has integers, and makes floats of them."""

    dtype: Any = np.dtype("int64")

    def fresh(self) -> np.ndarray:
        return super().fresh().astype(float)


class WidensIgnoring(Widens, Ignores):
    """The same, whatever it is asked."""


def with_dtype(kind: type[Object], dtype: Any) -> Object:
    thing = kind()
    thing.dtype = dtype  # type: ignore[attr-defined]
    return thing


class Int64:
    """A type that is not NumPy's, as pandas and polars have them."""

    name = "Int64"

    def __str__(self) -> str:
        return "Int64"


@pytest.mark.parametrize("kind", [Widens, WidensIgnoring])
@pytest.mark.parametrize("dtype", [np.dtype("int64"), "int64", np.int64, torch.int64])
def test_an_array_of_another_type_than_the_object_is_refused(kind, dtype) -> None:
    thing = with_dtype(kind, dtype)
    error = refused_everywhere(ferry.UnsupportedDTypeError, TypeError, thing, in_plans=False)
    assert "int64" in str(error)
    assert "float64" in str(error)


@pytest.mark.parametrize("kind", [Lazy, Ignores, NoArguments])
def test_types_that_are_not_those_of_numpy(kind: type[Object]) -> None:
    error = refused_everywhere(ferry.UnsupportedDTypeError, TypeError, with_dtype(kind, Int64()))
    assert "the dtype Int64" in str(error)


def test_a_share_of_another_type_or_shape_than_the_object_is_refused() -> None:
    """An object may keep the array of an earlier conversion."""
    thing = with_dtype(Honest, np.dtype("int64"))
    thing.array = thing.array.astype(float)
    error = refused_everywhere(ferry.UnsupportedDTypeError, TypeError, thing)
    assert "int64" in str(error)
    assert "float64" in str(error)
    thing = with_dtype(Honest, np.dtype("int64"))
    thing.shape = (7, 7)  # type: ignore[attr-defined]
    error = refused_everywhere(ferry.FrameworkError, RuntimeError, thing)
    assert "has the shape [7, 7]" in str(error)


def test_a_share_may_have_a_type_that_is_not_numpys() -> None:
    result, plan = carried(with_dtype(Honest, Int64()), "numpy")
    assert plan.shares
    assert result.dtype == np.int64


@pytest.mark.parametrize("name", ["__arrow_array__", "__dataframe__"])
@pytest.mark.parametrize("kind", [Lazy, Ignores, NoArguments])
def test_tables_are_not_converted(kind: type[Object], name: str) -> None:
    table = type("Table", (kind,), {name: lambda self, *_: None})
    for make in (table, lambda: with_dtype(table, Int64()), lambda: with_dtype(table, "int64")):
        thing = make()
        error = refused_everywhere(ferry.NotATensorError, TypeError, thing)
        assert "a conversion may change dtypes and nulls" in str(error)
        assert "one column at a time" in error.hint
    useful = type("Table", (table,), {"to_numpy": lambda self: None})()
    assert "x.to_numpy()" in refused_everywhere(ferry.NotATensorError, TypeError, useful).hint
    result, _ = carried(with_dtype(table, np.dtype("int64")), "numpy")
    assert result.tolist() == VALUES.tolist(), "a NumPy type has no nulls"


def test_tables_that_share_are_shared() -> None:
    table = type("Table", (Honest,), {"__dataframe__": lambda self, *_: None})
    assert carried(table(), "numpy")[1].shares


def test_another_shape_than_the_object_states() -> None:
    thing = StatedLazy()
    thing.__class__ = type("Wrong", (StatedLazy,), {"shape": (3, 2)})
    assert ferry.plan(thing, "numpy").shape == (3, 2)
    error = refused(ferry.FrameworkError, RuntimeError, lambda: ferry.to(thing, "numpy"))
    assert "[3, 2]" in str(error)
    assert "[2, 3]" in str(error)


@pytest.mark.parametrize("shape", [None, "ab", (None, 3), (float("nan"),), (-1, 3), 7, [2.5]])
def test_shapes_that_state_nothing(shape: Any) -> None:
    thing = with_dtype(Lazy, np.dtype("int64"))
    thing.shape = shape  # type: ignore[attr-defined]
    result, plan = carried(thing, "numpy")
    assert plan.shape == result.shape == VALUES.shape


def returning(value: Any) -> Any:
    return type("Thing", (), {"__array__": lambda self, dtype=None, copy=None: value})()


@pytest.mark.parametrize("value", [None, [1, 2], 3.5, torch.ones(2), memoryview(b"ab"), "text"])
def test_results_that_are_not_arrays(value: Any) -> None:
    error = refused_everywhere(ferry.FrameworkError, RuntimeError, returning(value))
    assert "returned an object of type" in str(error)


def test_a_mask_is_not_lost() -> None:
    masked = np.ma.masked_array([1, 2, 3], [False, True, False])
    fields = np.ma.masked_array(np.zeros(1, "i4,i4"), [(True, False)])
    for array in (masked, fields):
        for thing in (array, returning(array)):
            error = refused_everywhere(ferry.NotATensorError, TypeError, thing)
            assert "mask" in str(error)


@pytest.mark.parametrize("mask", [np.ma.nomask, False, np.zeros((2, 3), bool)])
def test_a_mask_that_masks_nothing(mask: Any) -> None:
    array = np.ma.masked_array(VALUES.copy(), mask)
    for thing in (array, returning(array)):
        result, plan = carried(thing, "numpy")
        assert type(result) is np.ndarray
        assert plan.shares
        assert np.shares_memory(result, array)
        assert carried(thing, "torch")[0].tolist() == VALUES.tolist()
    pickled = ferry.pickling.dumps(array)
    assert type(ferry.pickling.loads(*pickled)) is np.ma.MaskedArray


@pytest.mark.parametrize("kind", [Honest, Ignores, Lazy])
def test_elements_that_are_not_numbers(kind: type[Object]) -> None:
    for array in (np.array([1, None], object), np.array(["a"]), np.array(["2020"], "M8[s]")):
        in_plans = kind is not Lazy
        refused_everywhere(ferry.UnsupportedDTypeError, TypeError, kind(array), in_plans=in_plans)


def test_subclasses_of_arrays() -> None:
    array = VALUES.view(type("Table", (np.ndarray,), {}))
    result, _ = carried(returning(array), "numpy")
    assert type(result) is np.ndarray
    assert result.tolist() == VALUES.tolist()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("when", [False, None])
def test_a_request_to_stop(error: type[BaseException], when: bool | None) -> None:
    class Stops(Lazy):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            if copy is when:
                raise error
            return super().__array__(dtype, copy)

    with pytest.raises(error):
        ferry.to(Stops(), "numpy")
    if when is False:
        with pytest.raises(error):
            ferry.plan(Stops(), "numpy")


def test_what_the_method_raises_is_the_cause() -> None:
    class Breaks(Object):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            raise ZeroDivisionError(f"copy is {copy}")

    error = refused_everywhere(ferry.FrameworkError, RuntimeError, Breaks(), in_plans=False)
    assert "ZeroDivisionError: copy is None" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


class Memory(Object):
    """Has an array interface, and a method that must not be called."""

    __array_interface__ = property(lambda self: self.array.__array_interface__)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise AssertionError("asked through __array__")


def test_an_array_interface_comes_first() -> None:
    thing = Memory()
    result, plan = carried(thing, "numpy", copy=False)
    assert plan.shares
    assert result.__array_interface__["data"][0] == thing.array.__array_interface__["data"][0]
    both = type(
        "Both", (Memory,), {"__array_struct__": property(lambda s: s.array.__array_struct__)}
    )
    assert carried(both(), "numpy")[1].shares


def test_a_struct_alone_is_shared() -> None:
    struct = property(lambda self: VALUES.__array_struct__)
    thing = type("Struct", (), {"__array_struct__": struct})()
    assert np.shares_memory(ferry.to(thing, "numpy"), VALUES)
    assert np.shares_memory(ferry.to([thing], "numpy")[0], VALUES)


def test_dlpack_comes_first() -> None:
    class Both(Lazy):
        def __dlpack__(self, **keywords: Any) -> Any:
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    thing = Both()
    assert carried(thing, "numpy")[1].source == "dlpack"
    assert not thing.asked


def test_other_functions(tmp_path) -> None:
    """One reader serves them all."""
    values = VALUES.tolist()
    for kind in (Honest, Lazy, Ignores, StatedLazy, NoArguments, OldView):
        tree = ferry.to({"x": [kind(), 3]}, "torch")
        assert tree["x"][0].tolist() == values
        out = np.zeros(VALUES.shape, np.int64)
        assert ferry.to(kind(), "numpy", out=out) is out
        assert out.tolist() == values
        assert ferry.to_async(kind(), "torch").result().tolist() == values
        ferry.save(tmp_path / "x.npy", kind())
        assert ferry.load(tmp_path / "x.npy").tolist() == values
        with ferry.publish({"x": kind()}) as ticket:
            assert ferry.attach(ticket)["x"].tolist() == values
        assert ferry.via("torch")(torch.clone)(kind()).tolist() == values
        assert ferry.agnostic(lambda xp, x, y: y)(np.ones(3), kind()).tolist() == values


def test_other_functions_refuse_tables(tmp_path) -> None:
    table = type("Table", (Lazy,), {"__dataframe__": lambda self, *_: None})()
    ones = np.ones(3)
    for call in (
        lambda: ferry.to(table, "numpy", out=np.zeros(VALUES.shape)),
        lambda: ferry.to_async(table, "torch").result(),
        lambda: ferry.save(tmp_path / "x.npy", table),
        lambda: ferry.publish([table]),
        lambda: ferry.plan([table], "torch"),
        lambda: ferry.via("torch")(torch.clone)(table),
        lambda: ferry.via("torch")(lambda x, y: x)(ones, table),
    ):
        error = refused(ferry.NotATensorError, TypeError, call)
        assert "a conversion may change dtypes and nulls" in str(error)
    assert ferry.agnostic(lambda xp, x, y: y)(ones, table) is table
    assert None not in table.asked, "a table is not converted"


def test_the_same_memory_twice_is_published_once() -> None:
    thing = Honest(np.ones(1 << 16))
    with ferry.trace() as trips:
        ticket = ferry.publish([thing, thing.array])
    assert [trip.bytes_moved for trip in trips] == [thing.array.nbytes, 0]
    ticket.withdraw()


def test_registered_frameworks_may_give_such_objects() -> None:
    class Boxed:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

    ferry.register_framework("boxed_arrays", types=[Boxed], read=lambda box: box.inside, write=None)
    for kind in (Honest, Lazy, StatedLazy):
        result, plan = carried(Boxed(kind()), "torch")
        assert result.tolist() == VALUES.tolist()
        assert (STEP in plan.steps) == (kind is not Honest)
