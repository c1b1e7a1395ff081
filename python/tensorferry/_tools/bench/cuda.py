"""The CUDA driver, as far as timing needs it: an idle device, and plain copies."""

import contextlib
import ctypes
from collections.abc import Iterator

_Address = ctypes.c_uint64
_Handle = ctypes.c_void_p


class DriverError(RuntimeError):
    """A call of the driver that did not succeed."""


class Driver:
    """The first GPU, in the context that all frameworks have in common."""

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
        ends = (ctypes.c_size_t, _Handle)
        self._library.cuMemcpyHtoDAsync_v2.argtypes = [_Address, _Handle, *ends]
        self._library.cuMemcpyDtoHAsync_v2.argtypes = [_Handle, _Address, *ends]
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._context = _Handle()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise DriverError(f"{name} failed with the error {status}")

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(_Handle()))

    def synchronise(self) -> None:
        """Waits until the device has nothing to do."""
        with self._current():
            self._call("cuCtxSynchronize")

    @contextlib.contextmanager
    def buffers(self, size: int) -> Iterator[tuple[int, int]]:
        """The addresses of so many bytes of pinned memory and of memory on the device."""
        pinned, there = _Handle(), _Address()
        with self._current():
            self._call("cuMemHostAlloc", ctypes.byref(pinned), size, 0)
            try:
                self._call("cuMemAlloc_v2", ctypes.byref(there), size)
                try:
                    yield pinned.value or 0, there.value
                finally:
                    self._call("cuMemFree_v2", there)
            finally:
                self._call("cuMemFreeHost", pinned)

    def upload(self, there: int, pinned: int, size: int) -> None:
        """Begins a copy to the device; only inside of `buffers`."""
        self._call("cuMemcpyHtoDAsync_v2", there, pinned, size, None)

    def download(self, pinned: int, there: int, size: int) -> None:
        """Begins a copy from the device; only inside of `buffers`."""
        self._call("cuMemcpyDtoHAsync_v2", pinned, there, size, None)
