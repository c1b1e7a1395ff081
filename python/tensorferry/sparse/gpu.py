"""The same work as `work.Host` does, on a GPU: by PyTorch or CuPy, whichever is there."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tensorferry.sparse.work import (
    BEGINS,
    BEYOND,
    DENSE,
    DOES_NOT_FIT,
    ENDS,
    FINE,
    GOES_BACK,
    GROUPED,
    IN_ORDER,
    UNIQUE,
    Compressed,
    Coordinates,
    Host,
    axes_of,
    numpy_dtype,
)


class Gpu(Host, ABC):
    """What both have in common; `xp` is the one of them."""

    turns = False
    xp: Any = None

    @abstractmethod
    def argsort(self, keys: Any) -> Any:
        """A stable order of the keys."""

    @abstractmethod
    def cumsum(self, array: Any) -> Any:
        """Running sums, as int64."""

    @abstractmethod
    def find(self, sorted_ends: Any, places: Any) -> Any:
        """For each place, how many of the sorted ends are not beyond it."""

    def ends(self, array: Any) -> tuple[int, int]:
        """The least and the greatest of some numbers."""
        return int(array.min()), int(array.max())

    def look_compressed(self, indptr: Any, indices: Any, rows: int, columns: int) -> Compressed:
        """Looks pointers and indices through."""
        first, last = int(indptr[0]), int(indptr[-1])
        if first != 0:
            return BEGINS, first, 0, 0
        if bool((indptr[1:] < indptr[:-1]).any()):
            return GOES_BACK, 0, 0, 0
        if last > len(indices):
            return ENDS, last, 0, 0
        indices = indices[:last]
        bits = IN_ORDER | UNIQUE | self._dense((indptr, indices))
        if last:
            least, most = self.ends(indices)
            if least < 0 or most >= columns:
                return BEYOND, least if least < 0 else most, last, 0
        if last < 2:
            return FINE, 0, last, bits
        before, after = indices[:-1], indices[1:]
        rising, above = before <= after, before < after
        # Between the last of a row and the first of the next one they may do as they like.
        ends = indptr[1:-1]
        ends = self.wide(ends[(ends > 0) & (ends < last)] - 1)
        rising[ends] = True
        above[ends] = True
        if not bool(rising.all()):
            bits &= ~(IN_ORDER | UNIQUE)
        elif not bool(above.all()):
            bits &= ~UNIQUE
        return FINE, 0, last, bits

    def look_coordinates(
        self, parts: Sequence[Any], laid: str, lengths: Sequence[int], turned: bool = False
    ) -> Coordinates:
        """Looks coordinates through; `turned` has the last axis first in what is told of order."""
        axes = axes_of(parts, laid, len(lengths))
        count = len(axes[0])
        if any(axis.shape != axes[0].shape for axis in axes):
            return DOES_NOT_FIT, 0, 0, 0, 0
        wrong = (FINE, 0, 0)
        for number, axis in enumerate(axes if count else ()):
            least, most = self.ends(axis)
            if least < 0:
                return BEGINS, least, number, count, 0
            if most >= lengths[number]:
                wrong = (BEYOND, most, number)
        return *wrong, count, self._dense(parts) | order_of(axes[::-1] if turned else axes)

    def expand(self, indptr: Any, count: int) -> Any:
        """The row of each of so many elements."""
        return self.find(self.wide(indptr)[1:], self.arange(count))

    def pointers(self, places: Any, rows: int, dtype: str) -> Any:
        """Where each row begins, of elements that are grouped by rows."""
        made = self.fresh((rows + 1,), dtype, zero=True)
        if len(places):
            made[1:] = self.cumsum(self.xp.bincount(self.wide(places), minlength=rows))
        return made

    def lay(self, parts: Sequence[Any], laid: str, axes: int, wanted: str, dtype: str) -> Any:
        """Coordinates as one matrix."""
        given = axes_of(parts, laid, axes)
        count = len(given[0])
        whole = self.fresh((axes, count) if wanted == "axes" else (count, axes), dtype)
        for number, axis in enumerate(given):
            if wanted == "axes":
                whole[number] = axis
            else:
                whole[:, number] = axis
        return whole

    def order(self, parts: Sequence[Any], laid: str, lengths: Sequence[int]) -> Any:
        """A stable order by all axes, the first one first."""
        return GpuOrder(self, axes_of(parts, laid, len(lengths)))

    def _dense(self, arrays: Sequence[Any]) -> int:
        return DENSE if all(self.contiguous(array) for array in arrays) else 0


class GpuOrder:
    """An order of elements."""

    def __init__(self, work: Gpu, axes: list[Any]) -> None:
        self._work = work
        order = work.argsort(axes[-1])
        for axis in axes[-2::-1]:
            order = order[work.argsort(axis[order])]
        self._order = order
        self.count = len(order)
        fresh: Any = None
        for axis in axes:
            ordered = axis[order]
            differs = ordered[1:] != ordered[:-1]
            fresh = differs if fresh is None else fresh | differs
        self._groups = work.arange(self.count)
        self._groups[1:] = work.cumsum(fresh)
        starts = work.where(fresh) + 1
        self.places = min(self.count, len(starts) + 1)
        self._starts = work.arange(self.places)
        self._starts[1:] = starts

    def pick(self, array: Any, firsts: bool = False) -> Any:
        """The elements of an array in the order, or the first of each place."""
        return self._work.take(array, self._order[self._starts] if firsts else self._order)

    def groups(self) -> Any:
        """The number of the place of each element, in the order."""
        return self._groups

    def sum(self, array: Any) -> Any:
        """The sum of what is at each place, in the array's type."""
        # To the first of each place, so that what is there once stays what it is: minus zero too.
        made, groups = self.pick(array, True), self._groups
        again = self._work.where(groups[1:] == groups[:-1]) + 1
        self._work.add(made, (groups[again],), self.pick(array)[again])
        return made


def order_of(axes: list[Any]) -> int:
    """What the places are like, the first axis first, in bits."""
    if len(axes[0]) < 2:
        return IN_ORDER | UNIQUE | GROUPED
    less: Any = None
    equal: Any = None
    grouped = True
    for axis in axes:
        before, after = axis[:-1], axis[1:]
        below, same = before < after, before == after
        if less is None:
            grouped = bool((below | same).all())
        less = below if less is None else less | (equal & below)
        equal = same if equal is None else equal & same
    if not bool((less | equal).all()):
        return GROUPED if grouped else 0
    return IN_ORDER | GROUPED | (0 if bool(equal.any()) else UNIQUE)


class Cupy(Gpu):
    """CuPy on a GPU."""

    framework = "cupy"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.xp = sys.modules["cupy"]

    def fresh(self, shape: Sequence[int], dtype: str, *, zero: bool = False) -> Any:
        """New memory on the GPU."""
        with self.xp.cuda.Device(int(self.device.partition(":")[2] or 0)):
            return (self.xp.zeros if zero else self.xp.empty)(tuple(shape), numpy_dtype(dtype))

    def where(self, mask: Any) -> Any:
        """Where a mask is true."""
        return self.xp.flatnonzero(mask)

    def cumsum(self, array: Any) -> Any:
        """Running sums, as int64."""
        return self.xp.cumsum(array, dtype="int64")

    def find(self, sorted_ends: Any, places: Any) -> Any:
        """For each place, how many of the sorted ends are not beyond it."""
        return self.xp.searchsorted(sorted_ends, places, side="right")

    def take(self, array: Any, places: Any) -> Any:
        """The rows of an array at some places, as new memory."""
        return array[places]

    def argsort(self, keys: Any) -> Any:
        """A stable order of the keys."""
        return self.xp.argsort(keys, kind="stable")

    def arange(self, count: int) -> Any:
        """The numbers from 0 on."""
        with self.xp.cuda.Device(int(self.device.partition(":")[2] or 0)):
            return self.xp.arange(count, dtype="int64")

    def add(self, made: Any, places: tuple[Any, ...], values: Any) -> None:
        """Adds values at places, the same place as often as it is there."""
        kind = made.dtype.kind
        if kind not in "biu":
            self.xp.add.at(made, places, values)
            return
        # It adds no signed 64-bit and no narrow integers; their sums wrap alike in uint64.
        sums = made.astype("uint64")
        self.xp.add.at(sums, places, values.astype("uint64"))
        made[...] = sums != 0 if kind == "b" else sums.astype(made.dtype)


class Torch(Gpu):
    """PyTorch on a GPU."""

    framework = "torch"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.xp = sys.modules["torch"]

    def fresh(self, shape: Sequence[int], dtype: str, *, zero: bool = False) -> Any:
        """New memory on the device."""
        make = self.xp.zeros if zero else self.xp.empty
        return make(tuple(shape), dtype=getattr(self.xp, dtype), device=self.device)

    def contiguous(self, array: Any) -> bool:
        """Whether it is dense and row-major."""
        return bool(array.is_contiguous())

    def pack(self, array: Any, dtype: str) -> Any:
        """A dense copy, of that type."""
        made = self.fresh(array.shape, dtype)
        return made.copy_(array)

    def argsort(self, keys: Any) -> Any:
        """A stable order of the keys."""
        return self.xp.argsort(keys, stable=True)

    def arange(self, count: int) -> Any:
        """The numbers from 0 on."""
        return self.xp.arange(count, dtype=self.xp.int64, device=self.device)

    def wide(self, array: Any) -> Any:
        """Numbers as int64."""
        return array.to(self.xp.int64)

    def cumsum(self, array: Any) -> Any:
        """Running sums, as int64."""
        return self.xp.cumsum(array, 0, dtype=self.xp.int64)

    def find(self, sorted_ends: Any, places: Any) -> Any:
        """For each place, how many of the sorted ends are not beyond it."""
        return self.xp.searchsorted(sorted_ends.contiguous(), places, right=True)

    def where(self, mask: Any) -> Any:
        """Where a mask is true."""
        return self.xp.nonzero(mask).reshape(-1)

    def take(self, array: Any, places: Any) -> Any:
        """The rows of an array at some places, as new memory."""
        return array.index_select(0, places)

    def add(self, made: Any, places: tuple[Any, ...], values: Any) -> None:
        """Adds values at places, the same place as often as it is there."""
        if made.dtype != self.xp.bool:
            made.index_put_(places, values, accumulate=True)
            return
        sums = made.to(self.xp.int64)
        made.copy_(sums.index_put_(places, values.to(sums.dtype), accumulate=True) != 0)
