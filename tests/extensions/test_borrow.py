"""`borrow` and `release` of the C table: extensions that read and write the same memory."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from support import subprocesses
from support.c_table import api, borrow, release, take
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


CHANGES = {
    "type": lambda x: setattr(x, "dtype", "f4"),
    "shape": lambda x: setattr(x, "shape", (5, 20)),
    "memory": lambda x: x.resize(100_000, refcheck=False),
}


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_an_array_may_change_while_it_is_borrowed(name: str, exclusive: bool) -> None:
    """rust-numpy would end the process, because it does not find the array again."""
    array = np.ones(100)
    held = borrow(array, take(array, writable=True), exclusive)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy deprecates the assignments
        CHANGES[name](array)
    release(held)
    # The table of rust-numpy has no entry left.
    release(borrow(array, take(array, writable=True), exclusive=True))


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
