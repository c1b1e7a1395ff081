"""The CUDA driver functions that timing needs: synchronisation and copies."""

import contextlib
import ctypes
from collections.abc import Iterator

_Address = ctypes.c_uint64
_Handle = ctypes.c_void_p


class DriverError(RuntimeError):
    """A driver call failed."""


class Driver:
    """The first GPU, in its primary context, which all frameworks share."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._library.cuCtxPushCurrent_v2.argtypes = [_Handle]
        self._library.cuMemAlloc_v2.argtypes = [ctypes.POINTER(_Address), ctypes.c_size_t]
        self._library.cuMemFree_v2.argtypes = [_Address]
        self._library.cuMemHostAlloc.argtypes = [
            ctypes.POINTER(_Handle),
            ctypes.c_size_t,
            ctypes.c_uint,
        ]
        self._library.cuMemFreeHost.argtypes = [_Handle]
        size_and_stream = (ctypes.c_size_t, _Handle)
        self._library.cuMemcpyHtoDAsync_v2.argtypes = [_Address, _Handle, *size_and_stream]
        self._library.cuMemcpyDtoHAsync_v2.argtypes = [_Handle, _Address, *size_and_stream]
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._context = _Handle()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise DriverError(f"{name} failed with error {status}")

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(_Handle()))

    def synchronise(self) -> None:
        """Waits until the device is idle."""
        with self._current():
            self._call("cuCtxSynchronize")

    @contextlib.contextmanager
    def buffers(self, size: int) -> Iterator[tuple[int, int]]:
        """Allocates pinned memory and device memory of `size` bytes; gives their addresses."""
        pinned, device = _Handle(), _Address()
        with self._current():
            self._call("cuMemHostAlloc", ctypes.byref(pinned), size, 0)
            try:
                self._call("cuMemAlloc_v2", ctypes.byref(device), size)
                try:
                    yield pinned.value or 0, device.value
                finally:
                    self._call("cuMemFree_v2", device)
            finally:
                self._call("cuMemFreeHost", pinned)

    def upload(self, device: int, pinned: int, size: int) -> None:
        """Starts a copy to the device; only valid inside `buffers`."""
        self._call("cuMemcpyHtoDAsync_v2", device, pinned, size, None)

    def download(self, pinned: int, device: int, size: int) -> None:
        """Starts a copy from the device; only valid inside `buffers`."""
        self._call("cuMemcpyDtoHAsync_v2", pinned, device, size, None)
