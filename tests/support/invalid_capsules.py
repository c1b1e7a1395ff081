"""DLPack capsules with arbitrary, also invalid, contents."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

CPU = 1
FLOAT = (2, 32, 1)


class Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class DType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Legacy(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Producer:
    """Speaks `__dlpack__`, and counts how often what it handed out was given back.

    Its memory and its deleter belong to the object itself, which therefore is never collected:
    whoever took the capsule may look at both for as long as it likes.
    """

    _alive: ClassVar[list[Producer]] = []

    def __init__(
        self,
        *,
        shape: tuple[int, ...] = (2, 3),
        strides: tuple[int, ...] | None = None,
        version: tuple[int, int] | None = (1, 0),
        null: bool = False,
        no_shape: bool = False,
        no_deleter: bool = False,
        ndim: int | None = None,
        dtype: tuple[int, int, int] = FLOAT,
        device: tuple[int, int] = (CPU, 0),
        device_said: Any = (CPU, 0),
        flags: int = 0,
        byte_offset: int = 0,
        name: bytes | None = None,
    ) -> None:
        self.memory = (ctypes.c_float * 64)(*range(64))
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = (ctypes.c_int64 * max(len(shape), 1))(*strides) if strides else None
        self.deleted = 0
        self.device_said = device_said
        self.managed = Legacy() if version is None else Versioned(*version, flags=flags)
        tensor = self.managed.tensor
        tensor.data = None if null else ctypes.addressof(self.memory)
        tensor.device = Device(*device)
        tensor.ndim = len(shape) if ndim is None else ndim
        tensor.dtype = DType(*dtype)
        if not no_shape:
            tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        if self.strides is not None:
            tensor.strides = ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64))
        tensor.byte_offset = byte_offset
        self.deleter = Deleter(self._delete)
        if not no_deleter:
            self.managed.deleter = self.deleter
        self.name = name or (b"dltensor" if version is None else b"dltensor_versioned")
        self.capsule = _new(ctypes.addressof(self.managed), self.name, None)
        self._alive.append(self)

    def _delete(self, _address: int) -> None:
        self.deleted += 1

    def __dlpack__(self, **_keywords: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> Any:
        return self.device_said
