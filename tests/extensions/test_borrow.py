"""`borrow` and `release` of the C table: extensions that read and write the same memory."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from support.c_table import api, borrow, release, take

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
    fact = (
        "is writing" if first else "is reading the memory of this tensor, and this call would write"
    )
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
    for identifier in [borrow(array, taken, exclusive=True), borrow(None, taken, exclusive=True)]:
        release(identifier)


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
