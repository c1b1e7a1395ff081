"""The C table on a real GPU: memory in place, the order of streams both ways, copies, results."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from support import extensions
from support.c_table import CPU, CUDA, NO_STREAM, C, F, Taken, api, take
from support.dtypes import FLOAT32

import tensorferry as ferry

TARGETS = [name for name in ("torch", "cupy", "jax") if name in GPU_FRAMEWORKS]
# int32 elements: 16 MiB, so that a copy that comes too early or too late has other values.
SIDE = 2048
BUSY_CYCLES = 50_000_000
ROUNDS = 10


@pytest.fixture(scope="module")
def functions() -> ModuleType:
    return extensions.load("tensorferry-test-pyo3")


def numbers(seed: int = 28) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.integers(-(1 << 30), 1 << 30, (SIDE, SIDE), np.int32)


def dense_copy(taken: Taken, stream: torch.cuda.Stream) -> torch.Tensor:
    """A copy of the memory as it lies, queued on a stream."""
    destination = torch.empty(SIDE * SIDE, dtype=torch.int32, device="cuda")
    destination.record_stream(stream)
    with torch.cuda.stream(stream):
        destination.copy_(memory_view(taken))
    return destination


class Described:
    """Memory by its address, for torch."""

    def __init__(self, taken: Taken) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (SIDE * SIDE,),
            "typestr": "<i4",
            # torch refuses the flag for read-only memory; nothing writes here.
            "data": (taken.data, False),
            "strides": None,
            "stream": None,
        }


def memory_view(taken: Taken) -> torch.Tensor:
    """The memory as a vector of torch, without any order of its own."""
    with torch.cuda.device(taken.tensor.device.index):
        return torch.as_tensor(Described(taken), device="cuda")


def on_gpu(name: str, array: np.ndarray) -> Any:
    return ferry.to(array, name, device="cuda")


def wait() -> None:
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_taken_in_place(name: str) -> None:
    array = numbers()
    x = on_gpu(name, array)
    stream = torch.cuda.Stream()
    taken = take(x, device=(CUDA, 0), stream=stream.cuda_stream)
    assert (taken.tensor.device.kind, taken.tensor.device.index) == (CUDA, 0)
    assert (taken.shape, taken.is_copied) == ((SIDE, SIDE), False)
    assert taken.is_read_only == (name == "jax")
    copied = dense_copy(taken, stream)
    stream.synchronize()
    assert np.array_equal(copied.cpu().numpy(), array.reshape(-1))


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "jax"])
def test_the_extension_waits_for_the_framework(name: str) -> None:
    """The framework's work is late, and the extension's stream waits for it."""
    array = numbers()
    for _ in range(ROUNDS):
        x = on_gpu(name, np.zeros_like(array))
        late = torch.from_numpy(array).cuda()
        wait()
        stream = torch.cuda.Stream()
        torch.cuda._sleep(BUSY_CYCLES)
        ferry.to(x, "torch").copy_(late)
        taken = take(x, stream=stream.cuda_stream)
        copied = dense_copy(taken, stream)
        stream.synchronize()
        assert np.array_equal(copied.cpu().numpy(), array.reshape(-1))


def test_without_a_stream_nothing_waits() -> None:
    """The test above can fail: without a stream the values are the earlier ones."""
    array = numbers()
    x = torch.zeros(SIDE, SIDE, dtype=torch.int32, device="cuda")
    late = torch.from_numpy(array).cuda()
    wait()
    stream = torch.cuda.Stream()
    torch.cuda._sleep(BUSY_CYCLES)
    x.copy_(late)
    taken = take(x, stream=NO_STREAM)
    with torch.cuda.stream(stream):
        copied = torch.empty(SIDE * SIDE, dtype=torch.int32, device="cuda")
        copied.copy_(memory_view(taken))
    stream.synchronize()
    assert not np.array_equal(copied.cpu().numpy(), array.reshape(-1))


@pytest.mark.parametrize("name", TARGETS)
def test_memory_is_not_reused_while_the_extension_reads_it(name: str) -> None:
    """The extension's work is late. The framework gets the memory back, and then writes it."""
    array = numbers()
    for _ in range(ROUNDS):
        x = on_gpu(name, array)
        wait()
        stream = torch.cuda.Stream()
        taken = take(x, stream=stream.cuda_stream)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(BUSY_CYCLES)
        copied = dense_copy(taken, stream)
        taken.release()
        del x
        gc.collect()
        others = [on_gpu(name, np.zeros_like(array)) for _ in range(3)]
        stream.synchronize()
        assert np.array_equal(copied.cpu().numpy(), array.reshape(-1))
        assert others


@pytest.mark.parametrize("name", TARGETS)
def test_another_order_is_copied_on_the_gpu(name: str) -> None:
    array = numbers()
    x = on_gpu(name, array)
    for stream in (torch.cuda.Stream(), None):
        handle = NO_STREAM if stream is None else stream.cuda_stream
        taken = take(x, order=F, stream=handle)
        assert (taken.is_copied, taken.is_read_only) == (True, False)
        assert (taken.shape, taken.strides) == ((SIDE, SIDE), (1, SIDE))
        used = torch.cuda.Stream() if stream is None else stream
        copied = dense_copy(taken, used)
        used.synchronize()
        assert np.array_equal(copied.cpu().numpy(), array.T.reshape(-1))
    with pytest.raises(ferry.CopyRequiredError):
        take(x, order=F, copy_allowed=False)


def test_a_conjugation_is_resolved_on_the_gpu() -> None:
    x = torch.randn(SIDE, SIDE, dtype=torch.complex64, device="cuda")
    taken = take(x.conj(), order=C)
    assert taken.is_copied
    result = api.wrap(taken.address, "torch")
    taken.give_up()
    assert torch.equal(result, x.conj().resolve_conj())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", TARGETS)
def test_memory_is_wrapped_in_place(source: str, target: str) -> None:
    array = numbers()
    x = on_gpu(source, array)
    taken = take(x)
    address = taken.data
    result = api.wrap(taken.address, target)
    taken.give_up()
    again = take(result)
    # Memory of JAX is read-only, and tensors of PyTorch and CuPy can be written.
    if source != "jax" or target == "jax":
        assert again.data == address
    again.release()
    assert np.array_equal(ferry.to(result, "numpy"), array)


def test_late_memory_is_wrapped() -> None:
    """The work that fills the memory is queued on a stream that nobody names."""
    array = numbers()
    late = torch.from_numpy(array).cuda()
    for target in TARGETS:
        x = torch.zeros(SIDE, SIDE, dtype=torch.int32, device="cuda")
        wait()
        taken = take(x, stream=NO_STREAM)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(BUSY_CYCLES)
            x.copy_(late)
            result = api.wrap(taken.address, target)
            taken.give_up()
        assert np.array_equal(ferry.to(result, "numpy"), array), target


def test_a_request_for_host_memory_never_downloads() -> None:
    for name in TARGETS:
        with pytest.raises(ferry.UnsupportedError, match="accepts tensors on cpu") as caught:
            take(on_gpu(name, np.ones(3, "f4")), device=(CPU, 0), dtypes=[FLOAT32])
        assert caught.value.hint == f'pass ferry.to(x, "{name}", device="cpu")'


@pytest.mark.parametrize("name", TARGETS)
def test_views_in_rust_never_download(functions: ModuleType, name: str) -> None:
    x = on_gpu(name, np.ones((2, 3), "f4"))
    errors = functions.view_errors(x)
    assert len(errors) == 5
    for error in errors:
        assert isinstance(error, ferry.UnsupportedError)
        assert "accepts tensors on cpu, and the tensor is on cuda:0" in str(error)
    assert functions.describe(x) == ("float32", [2, 3], "cuda:0", 2, False)


@pytest.mark.parametrize("name", TARGETS)
def test_any_tensor_is_used_on_a_stream(functions: ModuleType, name: str) -> None:
    """The stream of the extension waits for the work of the framework, as with the C table."""
    expected = numbers()
    stream = torch.cuda.Stream()

    def read(address: int) -> None:
        taken = Taken(address)
        taken.give_up()
        seen = dense_copy(taken, stream)
        stream.synchronize()
        np.testing.assert_array_equal(seen.cpu().numpy().reshape(SIDE, SIDE), expected)

    functions.with_struct(on_gpu(name, expected), stream.cuda_stream, read)


@pytest.mark.parametrize("name", TARGETS)
def test_memory_of_an_extension_is_wrapped_where_it_is(functions: ModuleType, name: str) -> None:
    x = on_gpu(name, numbers())
    taken = take(x, stream=torch.cuda.current_stream().cuda_stream)
    address = taken.data
    y = functions.wrap_struct(x, taken.address)
    taken.give_up()
    assert type(y) is type(x)
    np.testing.assert_array_equal(ferry.to(y, "numpy"), numbers())
    assert take(y).data == address
