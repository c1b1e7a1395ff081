"""The array functions of PyTorch and CuPy that work on sparse tensors on a GPU needs.

`ArrayFunctions` is the common interface of the two frameworks.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tensorferry._native import to


class ArrayFunctions(ABC):
    """The common functions of both frameworks; `xp` is the module of the framework."""

    framework = ""
    xp: Any = None

    def __init__(self, device: str) -> None:
        self.device = device

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """An uninitialised array; `dtype` is a name or a dtype of the framework."""

    @abstractmethod
    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array of zeros."""

    @abstractmethod
    def is_dense(self, array: Any) -> bool:
        """Whether an array is dense and row-major."""

    @abstractmethod
    def argsort(self, keys: Any) -> Any:
        """The indices that sort the keys, stably."""

    @abstractmethod
    def cumsum(self, array: Any) -> Any:
        """Cumulative sums, as int64."""

    @abstractmethod
    def count_not_above(self, sorted_ends: Any, numbers: Any) -> Any:
        """For each number, how many of the sorted ends are less or equal."""

    @abstractmethod
    def where(self, mask: Any) -> Any:
        """The indices at which a mask is true."""

    @abstractmethod
    def take(self, array: Any, indices: Any) -> Any:
        """A copy of the rows of an array with these indices."""

    @abstractmethod
    def arange(self, count: int) -> Any:
        """The numbers from 0 to `count - 1`, as int64."""

    @abstractmethod
    def widen(self, array: Any) -> Any:
        """An integer array as int64."""

    @abstractmethod
    def add(self, made: Any, indices: tuple[Any, ...], values: Any) -> None:
        """Adds values at these indices, which may repeat."""

    def fetch(self, array: Any) -> Any:
        """The array in the framework; shared if it is on the device."""
        return to(array, self.framework, device=self.device)

    def pack(self, array: Any, dtype: Any) -> Any:
        """A dense copy of an array, of another type."""
        made = self.empty(array.shape, dtype)
        made[...] = array
        return made


class CupyFunctions(ArrayFunctions):
    """CuPy."""

    framework = "cupy"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.xp = sys.modules["cupy"]

    def _device_context(self) -> Any:
        return self.xp.cuda.Device(int(self.device.partition(":")[2] or 0))

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """An uninitialised array; `dtype` is a name or a dtype of the framework."""
        with self._device_context():
            return self.xp.empty(tuple(shape), _numpy_dtype(dtype))

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array of zeros."""
        with self._device_context():
            return self.xp.zeros(tuple(shape), _numpy_dtype(dtype))

    def is_dense(self, array: Any) -> bool:
        """Whether an array is dense and row-major."""
        return bool(array.flags.c_contiguous)

    def where(self, mask: Any) -> Any:
        """The indices at which a mask is true."""
        return self.xp.flatnonzero(mask)

    def cumsum(self, array: Any) -> Any:
        """Cumulative sums, as int64."""
        return self.xp.cumsum(array, dtype="int64")

    def count_not_above(self, sorted_ends: Any, numbers: Any) -> Any:
        """For each number, how many of the sorted ends are less or equal."""
        return self.xp.searchsorted(sorted_ends, numbers, side="right")

    def take(self, array: Any, indices: Any) -> Any:
        """A copy of the rows of an array with these indices."""
        return array[indices]

    def argsort(self, keys: Any) -> Any:
        """The indices that sort the keys, stably."""
        return self.xp.argsort(keys, kind="stable")

    def arange(self, count: int) -> Any:
        """The numbers from 0 to `count - 1`, as int64."""
        with self._device_context():
            return self.xp.arange(count, dtype="int64")

    def widen(self, array: Any) -> Any:
        """An integer array as int64."""
        return array.astype("int64", copy=False)

    def add(self, made: Any, indices: tuple[Any, ...], values: Any) -> None:
        """Adds values at these indices, which may repeat."""
        kind = made.dtype.kind
        if kind not in "biu":
            self.xp.add.at(made, indices, values)
            return
        # CuPy cannot add signed 64-bit and narrow integers; sums modulo 2**64 are the same.
        sums = made.astype("uint64")
        self.xp.add.at(sums, indices, values.astype("uint64"))
        made[...] = sums != 0 if kind == "b" else sums.astype(made.dtype)


class TorchFunctions(ArrayFunctions):
    """PyTorch."""

    framework = "torch"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.xp = sys.modules["torch"]

    def _dtype(self, dtype: Any) -> Any:
        return getattr(self.xp, dtype) if isinstance(dtype, str) else dtype

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """An uninitialised array; `dtype` is a name or a dtype of the framework."""
        return self.xp.empty(tuple(shape), dtype=self._dtype(dtype), device=self.device)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array of zeros."""
        return self.xp.zeros(tuple(shape), dtype=self._dtype(dtype), device=self.device)

    def is_dense(self, array: Any) -> bool:
        """Whether an array is dense and row-major."""
        return bool(array.is_contiguous())

    def argsort(self, keys: Any) -> Any:
        """The indices that sort the keys, stably."""
        return self.xp.argsort(keys, stable=True)

    def arange(self, count: int) -> Any:
        """The numbers from 0 to `count - 1`, as int64."""
        return self.xp.arange(count, dtype=self.xp.int64, device=self.device)

    def widen(self, array: Any) -> Any:
        """An integer array as int64."""
        return array.to(self.xp.int64)

    def cumsum(self, array: Any) -> Any:
        """Cumulative sums, as int64."""
        return self.xp.cumsum(array, 0, dtype=self.xp.int64)

    def count_not_above(self, sorted_ends: Any, numbers: Any) -> Any:
        """For each number, how many of the sorted ends are less or equal."""
        return self.xp.searchsorted(sorted_ends.contiguous(), numbers, right=True)

    def where(self, mask: Any) -> Any:
        """The indices at which a mask is true."""
        return self.xp.nonzero(mask).reshape(-1)

    def take(self, array: Any, indices: Any) -> Any:
        """A copy of the rows of an array with these indices."""
        return array.index_select(0, indices)

    def add(self, made: Any, indices: tuple[Any, ...], values: Any) -> None:
        """Adds values at these indices, which may repeat."""
        if made.dtype != self.xp.bool:
            made.index_put_(indices, values, accumulate=True)
            return
        sums = made.to(self.xp.int64)
        made.copy_(sums.index_put_(indices, values.to(sums.dtype), accumulate=True) != 0)


def _numpy_dtype(dtype: Any) -> Any:
    return np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)


FUNCTIONS: dict[str, type[ArrayFunctions]] = {"torch": TorchFunctions, "cupy": CupyFunctions}
