"""Passes GPU memory to functions of tensorferry-pyo3, on the fake driver."""

from __future__ import annotations

import ctypes
import importlib.util
from types import ModuleType
from typing import Any

import cupy
import numpy as np
from support.c_table import CUDA, Taken, take
from support.cases import case, main
from support.fake_gpu import driver, on_gpu
from support.invalid_capsules import Versioned

ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


def functions(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tensorferry_test_pyo3", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@case
def views(path: str) -> None:
    """No view downloads."""
    errors = functions(path).view_errors(on_gpu(ARRAY))
    assert len(errors) == 5, errors
    for error in errors:
        assert isinstance(error, ValueError), error
        assert "accepts tensors on cpu, and the tensor is on cuda:0" in str(error), error
        assert 'device="cpu"' in str(error), error


@case
def any_tensor(path: str) -> None:
    x = on_gpu(ARRAY)
    assert functions(path).describe(x) == ("float32", [3, 4], "cuda:0", 2, False)


@case
def streams(path: str) -> None:
    """The stream of the extension waits for the work of the array's stream."""
    module, source = functions(path), on_gpu(ARRAY)
    for _ in range(20):
        stream = cupy.cuda.Stream()
        seen: list[np.ndarray] = []

        def read(address: int, stream: Any = stream, seen: list[np.ndarray] = seen) -> None:
            tensor = Versioned.from_address(address).tensor
            assert (tensor.device.kind, tensor.device.index) == (CUDA, 0)
            host = np.empty((3, 4), "f4")
            copy = driver.cuMemcpyDtoHAsync_v2
            copy.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
            assert copy(host.ctypes.data, tensor.data, host.nbytes, stream.ptr) == 0
            stream.synchronize()
            seen.append(host)

        with cupy.cuda.Stream():
            module.with_struct(source.queue_copy(), stream.ptr, read)
        np.testing.assert_array_equal(seen[0], ARRAY)


@case
def results(path: str) -> None:
    """Memory of the extension becomes an array of the argument's framework, where it is."""
    x = on_gpu(ARRAY)
    taken: Taken = take(x)
    y = functions(path).wrap_struct(x, taken.address)
    taken.give_up()
    assert type(y) is cupy.ndarray
    assert y.data.ptr == x.data.ptr
    np.testing.assert_array_equal(y.get(), ARRAY)


if __name__ == "__main__":
    main()
