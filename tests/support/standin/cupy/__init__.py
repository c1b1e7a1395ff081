"""A CuPy that runs on the stand-in for the CUDA driver: as much of it as tensorferry calls.

Its allocator is as eager as the real one: it reuses released memory at once, without waiting. It is
more eager where `reuses_across_streams` is true, as it is at first: any stream gets the memory, and
with the real one only the stream on which it was allocated.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from types import ModuleType
from typing import Any

import numpy as np

__version__ = "13.0.0"

driver = ctypes.CDLL("libcuda.so.1")
_Address = ctypes.c_uint64
_Pointer = ctypes.c_void_p
driver.cuMemAlloc_v2.argtypes = [_Pointer, ctypes.c_size_t]
driver.cuMemcpyHtoDAsync_v2.argtypes = [_Address, _Pointer, ctypes.c_size_t, _Pointer]
driver.cuMemcpyDtoHAsync_v2.argtypes = [_Pointer, _Address, ctypes.c_size_t, _Pointer]
driver.cuMemcpyDtoDAsync_v2.argtypes = [_Address, _Address, ctypes.c_size_t, _Pointer]
driver.cuStreamSynchronize.argtypes = [_Pointer]
driver.cuCtxPushCurrent_v2.argtypes = [_Pointer]

_idle: dict[tuple[int, int, int], list[int]] = {}
reuses_across_streams = True


class _Current(threading.local):
    """The streams of the blocks that a thread is in."""

    def __init__(self) -> None:
        self.streams: list[tuple[int, Stream]] = []


_current = _Current()
# The stream that was current at each allocation.
allocated_on: list[int] = []


class OutOfMemoryError(MemoryError):
    """As CuPy's own."""


class Device:
    """A block in which a device is the current one."""

    current = 0

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> Device:
        context = _Pointer()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.index) == 0
        assert driver.cuCtxPushCurrent_v2(context) == 0
        self.before, Device.current = Device.current, self.index
        return self

    def __exit__(self, *_: object) -> None:
        Device.current = self.before
        assert driver.cuCtxPopCurrent_v2(ctypes.byref(_Pointer())) == 0


class Stream:
    """A stream, and a block in which it is the current one of the device that is current then."""

    def __init__(self, handle: int | None = None) -> None:
        if handle is None:
            made = _Pointer()
            assert driver.cuStreamCreate(ctypes.byref(made), 1) == 0
            handle = made.value
        self.ptr = handle

    def __enter__(self) -> Stream:
        _current.streams.append((Device.current, self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.streams.pop()

    def synchronize(self) -> None:
        assert driver.cuStreamSynchronize(self.ptr) == 0


def get_current_stream(device_id: int | None = None) -> Stream:
    device = Device.current if device_id is None else device_id
    found = [stream for place, stream in _current.streams if place == device]
    return found[-1] if found else Stream(0)


class Memory:
    """Memory of its own, which goes back to the allocator."""

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, Device.current
        stream = get_current_stream().ptr or 0
        allocated_on.append(stream)
        self.pool = (size, self.device_id, 0 if reuses_across_streams else stream)
        idle = _idle.get(self.pool)
        if idle:
            self.ptr = idle.pop()
            return
        place = _Address()
        status = driver.cuMemAlloc_v2(ctypes.byref(place), max(size, 1))
        if status != 0:
            self.ptr = 0
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        self.ptr = place.value

    def __del__(self) -> None:
        if self.ptr:
            _idle.setdefault(self.pool, []).append(self.ptr)


class UnownedMemory:
    """Memory of somebody else, whom it keeps alive."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    """A place in memory."""

    def __init__(self, mem: Memory | UnownedMemory, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class ndarray:  # noqa: N801 (its name in CuPy)
    """An array in device memory."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        dense = np.empty(self.shape, self.dtype)
        self._c_contiguous = strides is None
        self.strides = tuple(strides) if strides is not None else dense.strides
        self.data = memptr or MemoryPointer(Memory(dense.nbytes), 0)

    def __getitem__(self, rows: slice | int) -> ndarray:
        if isinstance(rows, int):
            row = self[rows : rows + 1]
            return ndarray(self.shape[1:], self.dtype, row.data)
        begin, end, _ = rows.indices(self.shape[0])
        offset = self.data.ptr - self.data.mem.ptr + begin * self.strides[0]
        memory = MemoryPointer(self.data.mem, offset)
        return ndarray((max(end - begin, 0), *self.shape[1:]), self.dtype, memory)

    def set(self, array: np.ndarray) -> None:
        """Queues a copy from the host on the current stream; the caller keeps the array."""
        stream = get_current_stream().ptr
        status = driver.cuMemcpyHtoDAsync_v2(self.data.ptr, array.ctypes.data, array.nbytes, stream)
        assert status == 0

    def queue_copy(self) -> ndarray:
        """Queues a copy on the current stream, which nobody waits for."""
        other = empty(self.shape, self.dtype)
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        stream = get_current_stream().ptr
        status = driver.cuMemcpyDtoDAsync_v2(other.data.ptr, self.data.ptr, size, stream)
        assert status == 0
        return other

    def get(self) -> np.ndarray:
        """The values, after what is queued on the current stream."""
        host = np.empty(self.shape, self.dtype)
        stream = get_current_stream()
        status = driver.cuMemcpyDtoHAsync_v2(
            host.ctypes.data, self.data.ptr, host.nbytes, stream.ptr
        )
        assert status == 0
        stream.synchronize()
        return host


def empty(shape: tuple[int, ...], dtype: Any = float) -> ndarray:
    return ndarray(shape, dtype)


def asarray(array: np.ndarray) -> ndarray:
    """A copy on the current device, which is there when this returns."""
    x = empty(array.shape, array.dtype)
    x.set(np.ascontiguousarray(array))
    get_current_stream().synchronize()
    return x


class Runtime:
    """What CuPy says about the devices."""

    @staticmethod
    def getDeviceCount() -> int:  # noqa: N802 (its name in CuPy)
        count = ctypes.c_int()
        assert driver.cuInit(0) == 0
        assert driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        return count.value

    @staticmethod
    def getDevice() -> int:  # noqa: N802 (its name in CuPy)
        return Device.current

    @staticmethod
    def getDeviceProperties(index: int) -> dict[str, Any]:  # noqa: N802 (its name in CuPy)
        return {"name": f"Stand-in {index}".encode()}


cuda = ModuleType("cupy.cuda")
cuda.Device = Device
cuda.Stream = Stream
cuda.ExternalStream = Stream
cuda.MemoryPointer = MemoryPointer
cuda.UnownedMemory = UnownedMemory
cuda.get_current_stream = get_current_stream
cuda.runtime = Runtime
cuda.is_available = lambda: Runtime.getDeviceCount() > 0
sys.modules["cupy.cuda"] = cuda
