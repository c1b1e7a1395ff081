"""Work on index arrays and values where they lie: sorting, counting, summing, scattering.

On the host this is NumPy. On a GPU it is PyTorch or CuPy, whichever the trip is about or the
program has loaded; where neither is there, the arrays are downloaded and the plan says so. The same
methods in each. Memory that is made on the host begins at a multiple of 64 bytes, so that every
framework can share it and nothing is copied twice.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tensorferry._native import OutOfMemory, to

ALIGNMENT = 64


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's object for a type that has a name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def aligned(shape: Sequence[int], dtype: np.dtype[Any], *, zero: bool = False) -> Any:
    """Host memory that begins at a multiple of 64 bytes."""
    size = math.prod(shape) * dtype.itemsize
    try:
        room = (np.zeros if zero else np.empty)(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError, OverflowError) as error:
        raise OutOfMemory(
            f"a tensor of shape {tuple(shape)} takes {size} bytes, which are not to be had"
            "\nhint: leave it sparse, or take a part of it"
        ) from error
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)


class Host:
    """NumPy on the host."""

    framework = "numpy"
    xp: Any = np

    def __init__(self, device: str) -> None:
        self.device = device

    def fetch(self, array: Any) -> Any:
        """The array as one of this worker's own; shared if it is here already."""
        return to(array, self.framework, device=self.device)

    def fresh(self, shape: Sequence[int], dtype: str, *, zero: bool = False) -> Any:
        """New memory."""
        return aligned(shape, numpy_dtype(dtype), zero=zero)

    def ends(self, array: Any) -> tuple[int, int]:
        """The least and the greatest of some numbers."""
        return int(array.min()), int(array.max())

    def contiguous(self, array: Any) -> bool:
        """Whether it is dense and row-major."""
        return bool(array.flags.c_contiguous)

    def pack(self, array: Any, dtype: str) -> Any:
        """A dense copy, of that type."""
        made = self.fresh(array.shape, dtype)
        made[...] = array
        return made

    def argsort(self, keys: Any) -> Any:
        """A stable order of the keys, which are not negative."""
        places = (len(keys) - 1).bit_length()
        if len(keys) < 2 or int(keys.max()).bit_length() + places > 64:
            return np.argsort(keys, kind="stable")
        # Key and place in one number: sorting numbers is several times as quick as a stable order,
        # and no two of them are equal.
        both = keys.astype("uint64")
        both <<= np.uint64(places)
        both |= np.arange(len(keys), dtype="uint64")
        both.sort()
        both &= np.uint64((1 << places) - 1)
        return both.view("int64")

    def arange(self, count: int) -> Any:
        """The numbers from 0 on."""
        return self.xp.arange(count, dtype="int64")

    def wide(self, array: Any) -> Any:
        """Numbers as int64."""
        return array.astype("int64", copy=False)

    def cumsum(self, array: Any) -> Any:
        """Running sums, as int64."""
        return self.xp.cumsum(array, dtype="int64")

    def counts(self, places: Any, length: int) -> Any:
        """How often each number below `length` is there."""
        return self.xp.bincount(places, minlength=length)

    def find(self, sorted_ends: Any, places: Any) -> Any:
        """For each place, how many of the sorted ends are not beyond it."""
        return self.xp.searchsorted(sorted_ends, places, side="right")

    def where(self, mask: Any) -> Any:
        """Where a mask is true."""
        return self.xp.flatnonzero(mask)

    def take(self, array: Any, order: Any) -> Any:
        """The rows of an array in an order, as new memory."""
        made = aligned((len(order), *array.shape[1:]), array.dtype)
        if len(order):
            np.take(array, order, axis=0, out=made, mode="clip")
        return made

    def add(self, made: Any, places: tuple[Any, ...], values: Any) -> None:
        """Adds values at places, the same place as often as it is there."""
        self.xp.add.at(made, places, values)


class Cupy(Host):
    """CuPy on a GPU."""

    framework = "cupy"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.xp = sys.modules["cupy"]

    def fresh(self, shape: Sequence[int], dtype: str, *, zero: bool = False) -> Any:
        """New memory on the GPU."""
        with self.xp.cuda.Device(int(self.device.partition(":")[2] or 0)):
            return (self.xp.zeros if zero else self.xp.empty)(tuple(shape), numpy_dtype(dtype))

    def take(self, array: Any, order: Any) -> Any:
        """The rows of an array in an order, as new memory."""
        return array[order]

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


class Torch(Host):
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

    def counts(self, places: Any, length: int) -> Any:
        """How often each number below `length` is there."""
        return self.xp.bincount(places, minlength=length)

    def find(self, sorted_ends: Any, places: Any) -> Any:
        """For each place, how many of the sorted ends are not beyond it."""
        return self.xp.searchsorted(sorted_ends.contiguous(), places, right=True)

    def where(self, mask: Any) -> Any:
        """Where a mask is true."""
        return self.xp.nonzero(mask).reshape(-1)

    def take(self, array: Any, order: Any) -> Any:
        """The rows of an array in an order, as new memory."""
        return array.index_select(0, order)

    def add(self, made: Any, places: tuple[Any, ...], values: Any) -> None:
        """Adds values at places, the same place as often as it is there."""
        if made.dtype != self.xp.bool:
            made.index_put_(places, values, accumulate=True)
            return
        sums = made.to(self.xp.int64)
        made.copy_(sums.index_put_(places, values.to(sums.dtype), accumulate=True) != 0)


def worker(device: str, source: str, target: str) -> tuple[Host, str | None]:
    """Who works on arrays of that device, and why not there if it is somewhere else."""
    if device == "cpu":
        return Host("cpu"), None
    kinds: dict[str, type[Host]] = {"torch": Torch, "cupy": Cupy}
    for name in (target, source, "torch", "cupy"):
        if name in kinds and name in sys.modules:
            return kinds[name](device), None
    return Host("cpu"), (
        "the indices are worked on by the host: that takes PyTorch or CuPy on a GPU, "
        "and neither is loaded"
    )
