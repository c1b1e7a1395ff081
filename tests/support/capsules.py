"""DLPack by hand: capsules over any memory, and a look into the capsules of others."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from typing import Any

from support.dtypes import DType

READ_ONLY, PADDED = 1, 4
LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
# A capsule keeps the address of its name, so these must live.
_USED = {LEGACY: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Legacy(Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _Versioned(Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (c_void_p, c_char_p, c_void_p)
_api.PyCapsule_GetName.restype = c_char_p
_api.PyCapsule_GetName.argtypes = (ctypes.py_object,)
_api.PyCapsule_GetPointer.restype = c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, c_char_p)
_api.PyCapsule_SetName.argtypes = (ctypes.py_object, c_char_p)

# What lies behind each struct that is out; its deleter takes the entry away.
_out: dict[int, tuple] = {}


@ctypes.CFUNCTYPE(None, c_void_p)
def _delete(address: int) -> None:
    _out.pop(address, None)


def _numbers(values: tuple[int, ...]) -> Any:
    return (c_int64 * max(1, len(values)))(*values)


class Producer:
    """An object that speaks DLPack and nothing else."""

    def __init__(
        self,
        dtype: DType,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        owner: object,
        *,
        versioned: bool = True,
        flags: int = 0,
        byte_offset: int = 0,
    ) -> None:
        """`strides` count elements; `owner` is kept until the last capsule's deleter has run."""
        self._parts = (dtype, address, shape, strides, owner, versioned, flags, byte_offset)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def _capsule(self) -> object:
        dtype, address, shape, strides, owner, versioned, flags, byte_offset = self._parts
        lengths, steps = _numbers(shape), _numbers(strides)
        tensor = _Tensor(
            address - byte_offset,
            1,
            0,
            len(shape),
            dtype.code,
            dtype.bits,
            1,
            lengths,
            steps,
            byte_offset,
        )
        deleter = ctypes.cast(_delete, c_void_p)
        if versioned:
            managed = _Versioned(
                1, 1, None, deleter, flags | (PADDED if dtype.is_narrow else 0), tensor
            )
        else:
            managed = _Legacy(tensor, None, deleter)
        _out[ctypes.addressof(managed)] = (managed, lengths, steps, owner)
        # Every capsule of these tests is consumed, so none needs a destructor.
        return _api.PyCapsule_New(
            ctypes.addressof(managed), VERSIONED if versioned else LEGACY, None
        )


class LegacyProducer(Producer):
    """As libraries wrote it before DLPack had versions."""

    def __dlpack__(self, stream: object = None) -> object:
        return self._capsule()


class VersionedProducer(Producer):
    """As libraries write it now."""

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        assert max_version is not None, "a consumer that knows versions says so"
        assert max_version[0] >= 1
        return self._capsule()


@dataclass(frozen=True)
class Peek:
    """What a capsule says, read without taking the tensor."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    flags: int


def peek(capsule: object) -> Peek:
    """Looks into a capsule of either form, leaving it as it was."""
    name = _api.PyCapsule_GetName(capsule)
    address = _api.PyCapsule_GetPointer(capsule, name)
    if name == VERSIONED:
        managed = _Versioned.from_address(address)
        flags = managed.flags
    else:
        managed = _Legacy.from_address(address)
        flags = 0
    tensor = managed.tensor
    rank, size = tensor.ndim, max(1, tensor.bits // 8)
    shape = tuple(tensor.shape[axis] for axis in range(rank))
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * size for axis in range(rank))
    else:
        strides = dense_strides(shape, size)
    return Peek((tensor.data or 0) + tensor.byte_offset, shape, strides, flags)


def taken(capsule: object) -> tuple[int, int]:
    """Takes the tensor out of a capsule of either form; its deleter and the argument of that."""
    name = _api.PyCapsule_GetName(capsule)
    address = _api.PyCapsule_GetPointer(capsule, name)
    form = {VERSIONED: _Versioned, LEGACY: _Legacy}[name]
    _api.PyCapsule_SetName(capsule, _USED[name])
    return form.from_address(address).deleter, address


def release(capsule: object) -> None:
    """Releases the tensor in a capsule of either form without taking it."""
    name = _api.PyCapsule_GetName(capsule)
    address = _api.PyCapsule_GetPointer(capsule, name)
    managed = {VERSIONED: _Versioned, LEGACY: _Legacy}[name].from_address(address)
    ctypes.PYFUNCTYPE(None, c_void_p)(managed.deleter)(address)


def dense_strides(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides: list[int] = []
    step = size
    for length in reversed(shape):
        strides.insert(0, step)
        step *= max(1, length)
    return tuple(strides)
