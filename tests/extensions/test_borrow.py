"""`borrow` and `release` of the C table: extensions that read and write the same memory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import subprocesses
from support.c_table import ANY, C, F, api, borrow, release, request, take
from support.compilers import build, load

import tensorferry as ferry


def test_readers_share() -> None:
    array = np.ones(4)
    taken = take(array)
    held = [borrow(array, taken), borrow(array, taken), borrow(None, taken)]
    assert len(set(held)) == 3
    for identifier in held:
        release(identifier)


@pytest.mark.parametrize("owner", ["the array", "no object"])
@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False), (True, True)])
def test_a_writer_excludes_everybody(first: bool, second: bool, owner: str) -> None:
    array = np.ones(4)
    taken = take(array, writable=True)
    given = array if owner == "the array" else None
    held = borrow(given, taken, exclusive=first)
    fact = "is writing" if first else "is using the memory of this tensor, and this call would"
    with pytest.raises(ferry.BorrowError, match=fact) as caught:
        borrow(given, taken, exclusive=second)
    assert caught.value.hint
    release(held)
    release(borrow(given, taken, exclusive=second))


def test_memory_is_compared_and_not_objects() -> None:
    array = np.ones(4, "f4")
    tensor = torch.from_numpy(array)
    taken, other = take(array, writable=True), take(tensor, writable=True)
    held = borrow(array, taken, exclusive=True)
    with pytest.raises(ferry.BorrowError):
        borrow(tensor, other)
    release(held)
    release(borrow(tensor, other, exclusive=True))


def test_columns_of_one_array_are_apart() -> None:
    array = np.ones((4, 3))
    columns = [array[:, index] for index in range(3)]
    held = [borrow(column, take(column), exclusive=True) for column in columns]
    with pytest.raises(ferry.BorrowError):
        borrow(array, take(array))
    for identifier in held:
        release(identifier)


def test_a_tensor_without_elements_conflicts_with_nothing() -> None:
    array = np.ones((0, 3))
    taken = take(array, writable=True)
    held = [borrow(given, taken, exclusive=True) for given in (array, array, None)]
    for identifier in held:
        release(identifier)


def test_slices_of_one_column_are_apart() -> None:
    """The strides of axes with one element mean nothing."""
    array = np.ones((4, 3))
    columns = [array[:, index : index + 1] for index in range(3)]
    for identifier in [borrow(column, take(column), exclusive=True) for column in columns]:
        release(identifier)


def owner() -> np.ndarray:
    return np.ones(100)


def view() -> np.ndarray:
    return np.ones((110,))[5:-5]


def column() -> np.ndarray:
    return np.ones((100, 3))[:, 1]


CHANGES: dict[str, tuple[Callable[[], np.ndarray], Callable[[np.ndarray], None]]] = {
    "type": (owner, lambda x: setattr(x, "dtype", "f4")),
    "shape": (owner, lambda x: setattr(x, "shape", (5, 20))),
    "an axis of one element": (owner, lambda x: setattr(x, "shape", (100, 1))),
    "strides": (column, lambda x: setattr(x, "strides", (8,))),
    "memory": (owner, lambda x: x.resize(100_000, refcheck=False)),
    "base": (view, lambda x: x.__setstate__(np.zeros(100).__reduce__()[2])),
}


def change(name: str, array: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy deprecates the assignments
        CHANGES[name][1](array)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_an_array_may_change_while_it_is_borrowed(name: str, exclusive: bool) -> None:
    """rust-numpy would end the process, because it does not find the array again."""
    array = CHANGES[name][0]()
    held = borrow(array, take(array, writable=True), exclusive)
    change(name, array)
    release(held)
    # The table of rust-numpy has no entry left.
    release(borrow(array, take(array, writable=True), exclusive=True))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_an_array_may_change_while_a_tensor_borrows_it(name: str, exclusive: bool) -> None:
    array = CHANGES[name][0]()
    taken = take(array, writable=exclusive, borrow=True)
    change(name, array)
    taken.release()
    take(array, writable=True, borrow=True).release()


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False), (True, True)])
def test_a_tensor_borrows_until_its_release(framework: str, first: bool, second: bool) -> None:
    x = ferry.to(np.ones((2, 3)), framework, copy=True)
    before = sys.getrefcount(x)
    taken = take(x, writable=first, borrow=True)
    with pytest.raises(ferry.BorrowError):
        take(x, writable=second, borrow=True)
    with pytest.raises(ferry.BorrowError):
        borrow(x, take(x), exclusive=second)
    taken.release()
    readers = [take(x, borrow=True), take(x, borrow=True)]
    with pytest.raises(ferry.BorrowError):
        take(x, writable=True, borrow=True)
    for reader in readers:
        reader.release()
    take(x, writable=True, borrow=True).release()
    assert sys.getrefcount(x) == before


def test_a_copy_is_not_borrowed() -> None:
    array = np.ones(4, ">f4")
    copies = [take(array, borrow=True), take(np.ones((2, 3)).T, order=C, borrow=True)]
    assert all(taken.is_copied for taken in copies)
    release(borrow(array, take(np.ones(4)), exclusive=True))
    swapped = array.view("<f4")
    take(swapped, writable=True, borrow=True).release()


COPIED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "swapped": (lambda x: x.view(">f4"), ANY),
    "unaligned": (lambda x: x.view("u1")[1:-3].view("f4"), ANY),
    "transposed": (lambda x: x.reshape(2, 4).T, C),
}


@pytest.mark.parametrize("borrowed", [False, True])
@pytest.mark.parametrize("kind", COPIED)
def test_memory_that_is_being_written_is_not_copied(kind: str, borrowed: bool) -> None:
    """The writer may run without the GIL."""
    array = np.ones(8, "f4")
    other, order = COPIED[kind][0](array), COPIED[kind][1]
    writer = take(array, writable=True, borrow=True)
    with pytest.raises(ferry.BorrowError, match="is writing"):
        take(other, order=order, borrow=borrowed)
    writer.release()
    copy = take(other, order=order, borrow=borrowed)
    assert copy.is_copied
    take(array, writable=True, borrow=True).release()


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_lazy_values_of_memory_that_is_being_written_are_not_computed(bit: str) -> None:
    numbers = torch.ones(4, dtype=torch.complex64)
    lazy = numbers.conj() if bit == "conj" else numbers.conj().imag
    writer = take(numbers, writable=True, borrow=True)
    with pytest.raises(ferry.BorrowError, match="is writing"):
        take(lazy)
    writer.release()
    assert take(lazy).is_copied


def test_a_tensor_without_strides_is_refused() -> None:
    """DLPack allowed it before version 1.2."""
    array = np.ones((2, 3))
    taken = take(array)
    taken.tensor.strides = None
    with pytest.raises(ferry.InvalidTensorError, match="no strides"):
        borrow(array, taken)


def test_an_array_in_column_major_order_is_borrowed() -> None:
    """By a plan, which transposes it."""
    array = np.ones((3, 2), order="F")
    taken = take(array, order=F, borrow=True)
    assert not taken.is_copied
    with pytest.raises(ferry.BorrowError):
        take(array.T, writable=True, borrow=True)
    taken.release()
    take(array.T, writable=True, borrow=True).release()


def test_a_borrow_and_a_trace() -> None:
    """A borrow that is refused is not a trip."""
    array = np.ones(4)
    with ferry.trace() as trips:
        taken = take(array, writable=True, borrow=True)
        with pytest.raises(ferry.BorrowError):
            take(array, borrow=True)
    assert len(trips) == 1
    taken.release()


def test_a_tensor_that_is_released_without_the_gil_is_borrowed_no_longer() -> None:
    """The drop thread ends the borrow; calls of tensorferry do so too."""
    array = np.ones(4)
    taken = take(array, writable=True, borrow=True)
    taken.release(with_gil=False)
    take(array, writable=True, borrow=True).release()


def test_a_tensor_that_borrows_can_be_wrapped() -> None:
    array = np.ones(4)
    taken = take(array, writable=True, borrow=True)
    wrapped = api.wrap(taken.address, "torch")
    taken.give_up()
    with pytest.raises(ferry.BorrowError):
        take(array, borrow=True)
    wrapped[0] = 7
    assert array[0] == 7
    del wrapped
    take(array, borrow=True).release()


def test_reserved_fields_are_zero() -> None:
    wanted = request()
    wanted.reserved = 1
    with pytest.raises(ferry.InvalidArgumentError, match="reserved 1"):
        take(np.ones(4), wanted)


def test_views_of_one_element_are_borrowed() -> None:
    """rust-numpy would divide by the common divisor of their strides, which is 0."""
    number = np.zeros((), "c16")
    views = [np.broadcast_to(number, (4,)), np.broadcast_to(number.real, (4,))]
    for identifier in [borrow(view, take(view)) for view in views]:
        release(identifier)


def test_release_keeps_the_exception_that_is_set(tmp_path: Path) -> None:
    array = np.ones(4)
    held = borrow(array, take(array))
    name = "release_with_exception"
    module = load(build(Path(__file__).with_name(f"{name}.c"), name, tmp_path), name)
    with pytest.raises(KeyError, match="kept"):
        module.release(held)
    with pytest.raises(ferry.InvalidArgumentError):
        api.release(held)


def test_borrows_of_other_threads_end_in_the_child_of_a_fork() -> None:
    subprocesses.run_program("extensions/borrows_and_forks.py")


@pytest.mark.parametrize("identifier", [0, 1, 2**40, 2**64 - 1])
def test_an_unknown_borrow_is_an_error(identifier: int) -> None:
    with pytest.raises(ferry.InvalidArgumentError, match=f"identifier {identifier}"):
        api.release(identifier)


def test_a_borrow_ends_once() -> None:
    array = np.ones(4)
    held = borrow(array, take(array))
    release(held)
    with pytest.raises(ferry.InvalidArgumentError):
        api.release(held)


def test_a_refused_borrow_leaves_no_reference() -> None:
    array = np.ones(4)
    taken = take(array)
    held = borrow(array, taken)
    before = sys.getrefcount(array)
    for _ in range(5):
        with pytest.raises(ferry.BorrowError):
            borrow(array, taken, exclusive=True)
    assert sys.getrefcount(array) == before
    release(held)


def test_a_read_only_array_cannot_be_borrowed_for_writing() -> None:
    array = np.ones(4)
    array.flags.writeable = False
    taken = take(array)
    with pytest.raises(ferry.InvalidArgumentError, match="read-only"):
        borrow(array, taken, exclusive=True)
    # The failed borrow left nothing behind.
    release(borrow(None, taken, exclusive=True))
