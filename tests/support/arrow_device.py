"""Producers of the Arrow C device data interface, also invalid ones, and the structs of others."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13

Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Array(ctypes.Structure):
    """ArrowArray."""


Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", Release),
    ("private_data", ctypes.c_void_p),
]


class DeviceArray(ctypes.Structure):
    """ArrowDeviceArray."""

    _fields_ = (
        ("array", Array),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    )


_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
# A capsule keeps the address of its name, so it must live.
_NAME = b"arrow_device_array"


def array(
    length: int,
    buffers: Sequence[int | None],
    children: Sequence[Array] = (),
    *,
    null_count: int = 0,
    offset: int = 0,
    dictionary: Array | None = None,
) -> Array:
    """A struct that is not released, and that keeps what it points to."""
    made = Array(length, null_count, offset, len(buffers), len(children))
    made.buffers = (ctypes.c_void_p * max(len(buffers), 1))(*buffers)
    pointers = [ctypes.pointer(child) for child in children]
    made.children = (ctypes.POINTER(Array) * max(len(pointers), 1))(*pointers)
    if dictionary is not None:
        made.dictionary = ctypes.pointer(dictionary)
    made.kept = (buffers, children, dictionary)
    return made


class Producer:
    """A column that only has `__arrow_c_device_array__`, and counts how often it is released."""

    # Structs that are not released yet: a consumer may outlive the producer.
    _alive: ClassVar[set[Any]] = set()

    def __init__(
        self,
        kind: Any,
        exported: Array,
        device_type: int,
        device_id: int = 0,
        sync_event: int | None = None,
    ) -> None:
        self.releases = 0
        self._kind, self._exported = kind, exported
        self._device = (device_id, device_type, sync_event)

    def __arrow_c_device_array__(
        self, requested_schema: object = None, **kwargs: object
    ) -> tuple[object, object]:
        made = DeviceArray(self._exported, *self._device)
        held: list[Any] = [made, self._exported]

        def release(_: int) -> None:
            self.releases += 1
            held.clear()

        made.array.release = Release(release)
        held.append(made.array.release)
        capsule = _api.PyCapsule_New(ctypes.addressof(made), _NAME, None)
        self.made = made
        return self._kind.__arrow_c_schema__(), capsule


def column(
    kind: pa.DataType, length: int, data: int | None, device_type: int = CUDA, **options: Any
) -> Producer:
    """A column of numbers at an address."""
    of_struct = {key: options.pop(key) for key in ("null_count", "offset") if key in options}
    bitmap = options.pop("bitmap", None)
    return Producer(kind, array(length, [bitmap, data], **of_struct), device_type, **options)


def inspect_export(exported: Any) -> DeviceArray:
    """The struct that an object exports. The capsule releases it when it is dropped."""
    _, capsule = exported.__arrow_c_device_array__()
    found = DeviceArray.from_address(_api.PyCapsule_GetPointer(capsule, _NAME))
    found.capsule = capsule
    return found
