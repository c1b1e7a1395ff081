"""Work on index arrays and values on the host: looking through, ordering, summing, laying together.

The work itself is done by compiled functions, which share large arrays out to threads. `gpu.py` has
the same methods for arrays on a GPU. Memory that is made on the host begins at a multiple of 64
bytes, so that every framework can share it and nothing is copied twice.
"""

import math
import mmap
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from tensorferry._native import (
    OutOfMemoryError,
    _sparse_expand,
    _sparse_lay,
    _sparse_look_compressed,
    _sparse_look_coordinates,
    _sparse_pointers,
    _sparse_turn_compressed,
    _sparse_turn_coordinates,
    _SparseOrder,
    empty_aligned,
    to,
)

T = TypeVar("T")

# What a look finds, in bits.
IN_ORDER, UNIQUE, GROUPED, INT32, INT64, DENSE = 1, 2, 4, 8, 16, 32
# What is wrong, by number; of coordinates, what begins below zero or is beyond an axis.
FINE, BEGINS, GOES_BACK, ENDS, BEYOND, DOES_NOT_FIT = range(6)

# What was wrong, the number, how many elements are used, and bits.
Compressed = tuple[int, int, int, int]
# What was wrong, the number, on which axis, how many elements there are, and bits.
Coordinates = tuple[int, int, int, int, int]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's object for a type that has a name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def aligned(shape: Sequence[int], dtype: np.dtype[Any], *, zero: bool = False) -> Any:
    """Host memory that every framework can share: a block of ours, or zeros in a map of its own.

    The pages of a map are not touched before they are used.
    """
    size = math.prod(shape) * dtype.itemsize
    try:
        if not zero:
            return empty_aligned(shape, dtype)
        pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (MemoryError, ValueError, OverflowError, OSError) as error:
        raise OutOfMemoryError(
            f"a tensor of shape {tuple(shape)} takes {size} bytes, which are not to be had"
            "\nhint: leave it sparse, or take a part of it"
        ) from error
    return np.ndarray(shape, dtype, pages)


def axes_of(parts: Sequence[Any], laid: str, count: int) -> list[Any]:
    """The coordinates along each of so many axes, as views."""
    if laid == "apart":
        return list(parts)
    whole = parts[0]
    return [whole[i] if laid == "axes" else whole[:, i] for i in range(count)]


class Host:
    """Compiled functions, over NumPy's arrays."""

    framework = "numpy"
    # Whether elements can be grouped by an axis without an order being made first.
    turns = True

    def __init__(self, device: str) -> None:
        self.device = device

    def fetch(self, array: Any) -> Any:
        """The array as one of this worker's own; shared if it is here already."""
        return to(array, self.framework, device=self.device)

    def fresh(self, shape: Sequence[int], dtype: str, *, zero: bool = False) -> Any:
        """New memory."""
        return aligned(shape, numpy_dtype(dtype), zero=zero)

    def contiguous(self, array: Any) -> bool:
        """Whether it is dense and row-major."""
        return bool(array.flags.c_contiguous)

    def pack(self, array: Any, dtype: str) -> Any:
        """A dense copy, of that type."""
        made = self.fresh(array.shape, dtype)
        made[...] = array
        return made

    def look_compressed(self, indptr: Any, indices: Any, rows: int, columns: int) -> Compressed:
        """Looks pointers and indices through."""
        return _here(_sparse_look_compressed(None, indptr, indices, rows, columns))

    def look_coordinates(
        self, parts: Sequence[Any], laid: str, lengths: Sequence[int], turned: bool = False
    ) -> Coordinates:
        """Looks coordinates through; `turned` has the last axis first in what is told of order."""
        return _here(_sparse_look_coordinates(None, parts, laid, lengths, turned))

    def expand(self, indptr: Any, count: int) -> Any:
        """The row of each of so many elements."""
        return _here(_sparse_expand(indptr, count))

    def pointers(self, places: Any, rows: int, dtype: str) -> Any:
        """Where each row begins, of elements that are grouped by rows."""
        return _here(_sparse_pointers(places, rows, dtype))

    def lay(self, parts: Sequence[Any], laid: str, axes: int, wanted: str, dtype: str) -> Any:
        """Coordinates as one matrix."""
        return _here(_sparse_lay(parts, laid, axes, wanted, dtype))

    def order(self, parts: Sequence[Any], laid: str, lengths: Sequence[int]) -> Any:
        """A stable order by all axes, the first one first."""
        return Order(_SparseOrder(parts, laid, lengths))

    def turn_compressed(
        self, indptr: Any, indices: Any, values: Any, columns: int, dtype: str
    ) -> tuple[Any, Any, Any]:
        """Compressed columns of compressed rows, or the other way round."""
        return _here(_sparse_turn_compressed(indptr, indices, values, columns, dtype))

    def turn_coordinates(
        self, groups: Any, others: Any, values: Any, length: int, dtype: str
    ) -> tuple[Any, Any, Any]:
        """Pointers, the other coordinates and the values of elements grouped by an axis."""
        return _here(_sparse_turn_coordinates(groups, others, values, length, dtype))

    def where(self, mask: Any) -> Any:
        """Where a mask is true."""
        return np.flatnonzero(mask)

    def arange(self, count: int) -> Any:
        """The numbers from 0 on."""
        return np.arange(count, dtype="int64")

    def wide(self, array: Any) -> Any:
        """Numbers as int64."""
        return array.astype("int64", copy=False)

    def take(self, array: Any, places: Any) -> Any:
        """The rows of an array at some places, as new memory."""
        made = aligned((len(places), *array.shape[1:]), array.dtype)
        if len(places):
            np.take(array, places, axis=0, out=made, mode="clip")
        return made

    def add(self, made: Any, places: tuple[Any, ...], values: Any) -> None:
        """Adds values at places, the same place as often as it is there."""
        np.add.at(made, places, values)


class Order:
    """An order of elements, made by compiled functions."""

    def __init__(self, made: _SparseOrder) -> None:
        self._made = made
        self.count, self.places = made.count, made.places

    def pick(self, array: Any, firsts: bool = False) -> Any:
        """The elements of an array in the order, or the first of each place."""
        return self._made.pick(array, firsts)

    def groups(self) -> Any:
        """The number of the place of each element, in the order."""
        return self._made.groups()

    def sum(self, array: Any) -> Any:
        """The sum of what is at each place, in the array's type."""
        found = self._made.sum(array)
        if found is not None:
            return found
        # To the first of each place, so that what is there once stays what it is: minus zero too.
        made, groups = self._made.pick(array, True), self._made.groups()
        again = np.flatnonzero(groups[1:] == groups[:-1]) + 1
        np.add.at(made, (groups[again],), self._made.pick(array)[again])
        return made


def _here(found: T | None) -> T:
    """What a compiled function gave, which takes arrays of whole numbers on the host."""
    assert found is not None
    return found


def worker(device: str, source: str, target: str) -> tuple[Host, str | None]:
    """Who works on arrays of that device, and why not there if it is somewhere else."""
    if not device.startswith("cuda"):
        return HOST, None
    from tensorferry.sparse import gpu

    kinds: dict[str, type[Host]] = {"torch": gpu.Torch, "cupy": gpu.Cupy}
    for name in (target, source, "torch", "cupy"):
        if name in kinds and name in sys.modules:
            return kinds[name](device), None
    return HOST, (
        "the indices are worked on by the host: that takes PyTorch or CuPy on a GPU, "
        "and neither is loaded"
    )


HOST = Host("cpu")
