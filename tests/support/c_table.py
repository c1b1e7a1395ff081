"""The C table of extension modules, called through ctypes: what C code would do, from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np
from support.dtypes import DType
from support.invalid_capsules import Device, Tensor, Versioned
from support.invalid_capsules import DType as RawDType

import tensorferry as ferry

READ_ONLY, IS_COPIED = 1, 2
ANY, C, F = 0, 1, 2
ANY_RANK = NO_STREAM = -1
CPU, CUDA = 1, 2


class Request(ctypes.Structure):
    """`TfRequest`."""

    _fields_ = (
        ("size", c_size_t),
        ("dtypes", POINTER(RawDType)),
        ("dtype_count", c_size_t),
        ("device", Device),
        ("rank", c_int32),
        ("order", c_int32),
        ("writable", c_int32),
        ("copy_allowed", c_int32),
        ("stream", c_int64),
        ("borrow", c_int32),
        ("reserved", c_int32),
    )


class Api(ctypes.Structure):
    """`TfApi`."""

    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("size", c_size_t),
        ("take", ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_void_p, POINTER(c_void_p))),
        ("wrap", ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.py_object)),
        ("borrow", ctypes.PYFUNCTYPE(c_int, c_void_p, c_void_p, c_int, POINTER(c_uint64))),
        ("release", ctypes.PYFUNCTYPE(c_int, c_uint64)),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)

api = Api.from_address(_pointer(ferry._C_API, b"tensorferry._C_API"))


def raw_dtype(dtype: DType) -> RawDType:
    """The element type as DLPack writes it."""
    return RawDType(dtype.code, dtype.bits, 1)


def request(
    dtypes: Sequence[DType] = (),
    device: tuple[int, int] = (0, 0),
    rank: int = ANY_RANK,
    order: int = ANY,
    writable: bool = False,
    copy_allowed: bool = True,
    stream: int = 0,
    borrow: bool = False,
    size: int = ctypes.sizeof(Request),
) -> Request:
    """A request; by default that of TENSORFERRY_REQUEST_INIT."""
    listed = (RawDType * len(dtypes))(*map(raw_dtype, dtypes)) if dtypes else None
    made = Request(size, listed, len(dtypes), Device(*device), rank, order)
    made.writable, made.copy_allowed, made.stream = writable, copy_allowed, stream
    made.borrow = borrow
    return made


_with_gil = ctypes.PYFUNCTYPE(None, c_void_p)
_without_gil = ctypes.CFUNCTYPE(None, c_void_p)


class Taken:
    """A managed tensor that `take` returned, released by `release` or with this object."""

    def __init__(self, address: int) -> None:
        self.address = address
        self.managed = Versioned.from_address(address)
        self.tensor: Tensor = self.managed.tensor
        self.flags: int = self.managed.flags
        self._is_held = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[: self.tensor.ndim]) if self.tensor.ndim else ()

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        return tuple(self.tensor.strides[: self.tensor.ndim]) if self.tensor.ndim else ()

    @property
    def data(self) -> int:
        return (self.tensor.data or 0) + self.tensor.byte_offset

    @property
    def dtype(self) -> tuple[int, int, int]:
        raw = self.tensor.dtype
        return raw.code, raw.bits, raw.lanes

    @property
    def is_copied(self) -> bool:
        return bool(self.flags & IS_COPIED)

    @property
    def is_read_only(self) -> bool:
        return bool(self.flags & READ_ONLY)

    def array(self, dtype: np.dtype) -> np.ndarray:
        """The host memory as an array, valid until the release."""
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        steps = [(length - 1) * step for length, step in zip(self.shape, self.strides, strict=True)]
        low = sum(step for step in steps if step < 0) * dtype.itemsize
        count = (sum(abs(step) for step in steps) + 1) * dtype.itemsize
        memory = (ctypes.c_uint8 * count).from_address(self.data + low)
        strides = [step * dtype.itemsize for step in self.strides]
        return np.ndarray(self.shape, dtype, memory, -low, strides)

    def release(self, with_gil: bool = True) -> None:
        """Calls the deleter, if nobody has."""
        if self._is_held:
            self._is_held = False
            deleter = ctypes.cast(self.managed.deleter, c_void_p).value
            (_with_gil if with_gil else _without_gil)(deleter)(self.address)

    def give_up(self) -> None:
        """The managed tensor has another owner now."""
        self._is_held = False

    def __del__(self) -> None:
        self.release()


def take(x: Any, wanted: Request | None = None, **options: Any) -> Taken:
    """`take`, with the options of `request`."""
    address = c_void_p()
    wanted = request(**options) if wanted is None else wanted
    assert api.take(x, ctypes.addressof(wanted), byref(address)) == 0
    assert address.value
    return Taken(address.value)


def borrow(x: Any, taken: Taken, exclusive: bool = False) -> int:
    """`borrow`, for the object or for None."""
    identifier = c_uint64()
    tensor = taken.address + Versioned.tensor.offset
    owner = None if x is None else id(x)
    assert api.borrow(owner, tensor, exclusive, byref(identifier)) == 0
    assert identifier.value
    return identifier.value


def release(identifier: int) -> None:
    """`release`."""
    assert api.release(identifier) == 0
