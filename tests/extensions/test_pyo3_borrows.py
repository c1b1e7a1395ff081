"""Views of the same memory exclude each other, also beside rust-numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support import extensions

import tensorferry as ferry

pytestmark = pytest.mark.extensions


@pytest.fixture(scope="module")
def functions() -> ModuleType:
    return extensions.load("tensorferry-test-pyo3")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return extensions.load("tensorferry-example-pyo3")


def ones(kind: str) -> Any:
    return {
        "numpy": lambda: np.ones(8, "float32"),
        "torch": lambda: torch.ones(8),
        "bytearray": lambda: memoryview(bytearray(32)).cast("f"),
    }[kind]()


KINDS = ("numpy", "torch", "bytearray")


def refused(function: Callable[[], object]) -> Callable[[], None]:
    """A function that expects a conflict, with a hint."""

    def call() -> None:
        with pytest.raises(ferry.BorrowError) as caught:
            function()
        assert caught.value.hint

    return call


@pytest.mark.parametrize("kind", KINDS)
def test_views_for_reading_share(functions: ModuleType, kind: str) -> None:
    x = ones(kind)
    functions.with_view(x, lambda: functions.with_view(x, lambda: functions.add(x, x)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_for_writing_excludes_all(functions: ModuleType, kind: str) -> None:
    x = ones(kind)
    nothing = lambda: None  # noqa: E731
    functions.with_view_mut(x, refused(lambda: functions.with_view(x, nothing)))
    functions.with_view_mut(x, refused(lambda: functions.with_view_mut(x, nothing)))
    functions.with_view(x, refused(lambda: functions.with_view_mut(x, nothing)))
    functions.with_view_mut(x, refused(lambda: functions.with_cast(x, nothing)))
    functions.with_view_mut(x, nothing)


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_cannot_read_what_it_writes(functions: ModuleType, kind: str) -> None:
    x = ones(kind)
    refused(lambda: functions.add_to(x, x))()
    functions.add_to(x, ones(kind))


def test_extensions_share_the_table(functions: ModuleType, example: ModuleType) -> None:
    """Two modules, each with its own copy of the crate."""
    x = np.ones((2, 2), "float32")
    functions.with_view(x, refused(lambda: example.scale_in_place(x, 2.0)))
    functions.with_view(x, lambda: example.normalise(x, 0.5))
    functions.with_view_mut(x, refused(lambda: example.normalise(x, 0.5)))
    assert (x == 1).all()
    example.scale_in_place(x, 2.0)
    assert (x == 2).all()


def test_overlap_counts_and_not_the_object(functions: ModuleType) -> None:
    base = np.ones(8, "float32")
    shared = torch.from_numpy(base)
    functions.with_view_mut(base[:4], lambda: functions.add_indices(base[4:]))
    functions.with_view_mut(base[:5], refused(lambda: functions.add_indices(base[4:])))
    functions.with_view_mut(base[2:6], refused(lambda: functions.add_indices(shared)))
    functions.with_view(shared, refused(lambda: functions.add_indices(base[::-1])))


def test_a_copy_is_not_borrowed(functions: ModuleType) -> None:
    x = np.ones(8, "float32")
    # A cast has values of its own once it is made.
    assert functions.with_cast(x, lambda: functions.add_indices(x)) == 8
    swapped = x.astype(">f4")
    functions.with_view(swapped, lambda: functions.with_view(swapped, lambda: None))


def test_a_cast_to_the_same_type_is_borrowed(functions: ModuleType) -> None:
    x = np.ones(8)
    floats = x.view("float32")
    functions.with_cast(x, refused(lambda: functions.add_indices(floats)))


def test_an_error_in_the_function_ends_the_borrow(functions: ModuleType) -> None:
    x = np.ones(8, "float32")
    for function in (functions.with_view_mut, functions.with_view):
        with pytest.raises(ZeroDivisionError):
            function(x, lambda: 1 // 0)
    functions.add_indices(x)


def test_an_argument_that_is_refused_ends_the_borrow_of_the_first(functions: ModuleType) -> None:
    x = np.ones(8, "float32")
    with pytest.raises(TypeError, match="accepts float32"):
        functions.add_to(x, np.ones(8))
    functions.add_indices(x)


def test_a_view_on_another_thread_counts(functions: ModuleType) -> None:
    x = np.ones(8, "float32")

    def elsewhere() -> None:
        thread = threading.Thread(target=refused(lambda: functions.add_indices(x)))
        thread.start()
        thread.join()

    functions.with_view(x, elsewhere)
    assert (x == 1).all()


def test_a_copying_view_does_not_read_what_is_written(functions: ModuleType) -> None:
    x = np.ones(8, "float32")
    swapped = x.view(">f4")
    functions.with_view_mut(x, refused(lambda: functions.add(swapped, swapped)))
    functions.with_view_mut(x, refused(lambda: functions.describe(swapped)))
    refused(lambda: functions.add_to(x, swapped))()
    functions.with_view(x, lambda: functions.add(swapped, swapped))


def test_a_tensor_may_move_between_extraction_and_view(functions: ModuleType) -> None:
    """`AnyTensor` borrows nothing: its views read the tensor again."""
    x = torch.zeros(4)

    def grow() -> None:
        x.resize_(1 << 16).fill_(3)

    values = functions.call_then_view(x, grow)
    assert values.shape == (1 << 16,)
    assert (values == 3).all()


class TestRustNumpy:
    """Borrows of rust-numpy and views of tensorferry exclude each other, both ways."""

    def test_its_reader_excludes_our_writer(self, functions: ModuleType) -> None:
        x = np.ones(8, "float32")
        functions.with_numpy_readonly(x, refused(lambda: functions.add_indices(x)))
        functions.with_numpy_readonly(x, lambda: functions.add(x, x))
        functions.add_indices(x)

    def test_its_writer_excludes_us(self, functions: ModuleType) -> None:
        x = np.ones(8, "float32")
        functions.with_numpy_readwrite(x, refused(lambda: functions.add(x, x)))
        functions.with_numpy_readwrite(x, refused(lambda: functions.add_indices(x)))
        functions.add_indices(x)

    def test_our_reader_excludes_its_writer(self, functions: ModuleType) -> None:
        x = np.ones(8, "float32")

        def write() -> None:
            with pytest.raises(TypeError, match="already borrowed"):
                functions.with_numpy_readwrite(x, lambda: None)

        functions.with_view(x, write)
        functions.with_view(x, lambda: functions.with_numpy_readonly(x, lambda: None))
        functions.with_numpy_readwrite(x, lambda: None)

    def test_our_writer_excludes_it(self, functions: ModuleType) -> None:
        x = np.ones(8, "float32")

        def use() -> None:
            for function in (functions.with_numpy_readonly, functions.with_numpy_readwrite):
                with pytest.raises(TypeError, match="already borrowed"):
                    function(x, lambda: None)

        functions.with_view_mut(x, use)
        functions.with_numpy_readwrite(x, lambda: None)

    @pytest.mark.parametrize("shape", [(), (1,), (1, 4), (4, 1)])
    def test_short_axes(self, functions: ModuleType, shape: tuple[int, ...]) -> None:
        """rust-numpy gives an array of rank 0 an empty range."""
        x = np.ones(shape, "float32")

        def write() -> None:
            with pytest.raises(TypeError, match="already borrowed"):
                functions.with_numpy_readwrite(x, lambda: None)

        functions.with_view(x, write)
        functions.with_view_mut(x, write)
        functions.with_numpy_readwrite(x, refused(lambda: functions.add_indices(x)))
        functions.with_numpy_readwrite(x, lambda: None)
        functions.add_indices(x)

    def test_an_element_and_its_array(self, functions: ModuleType) -> None:
        x = np.ones(4, "float32")
        element = x[2:3].reshape(())
        functions.with_numpy_readwrite(x, refused(lambda: functions.add_indices(element)))
        functions.with_view_mut(element, refused(lambda: functions.add(x, x)))
        functions.with_numpy_readwrite(x, lambda: None)
