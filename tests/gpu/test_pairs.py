"""Every pair of frameworks shares GPU memory: same address, same values, every type and layout."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
PAIRS = [(a, b) for a, b in itertools.product(GPU_FRAMEWORKS, GPU_FRAMEWORKS) if a != b]


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    generator = np.random.default_rng(7)
    if dtype == "bool":
        return generator.integers(0, 3, shape, dtype=np.uint8).view(bool)
    if dtype.startswith("complex"):
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(
            dtype
        )
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_shared(source, target, dtype):
    array = values(dtype, (3, 4))
    x = GPU_FRAMEWORKS[source].make(array)
    if not GPU_FRAMEWORKS[source].on_gpu(x):
        pytest.xfail(f"{source} keeps {dtype} in host memory")
    y = ferry.to(x, target)
    assert GPU_FRAMEWORKS[target].on_gpu(y)
    assert GPU_FRAMEWORKS[target].address(y) == GPU_FRAMEWORKS[source].address(x)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), array)
    assert str(GPU_FRAMEWORKS[target].host(y).dtype) == dtype
    plan = ferry.plan(x, target)
    assert plan.action == "share"


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (5,), (2, 3, 4, 5), (1 << 20,)])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_shapes(source, target, shape):
    array = values("float32", shape)
    x = GPU_FRAMEWORKS[source].make(array)
    y = ferry.to(x, target)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), array)


VIEWS = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "offset": lambda x: x[1:, 3:],
    "column": lambda x: x[:, 2],
    "one row": lambda x: x[3:4],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("target", GPU_FRAMEWORKS)
@pytest.mark.parametrize("source", [name for name in ("torch", "cupy") if name in GPU_FRAMEWORKS])
def test_strided(source, target, view):
    array = values("float32", (64, 48))
    x = VIEWS[view](GPU_FRAMEWORKS[source].make(array))
    y = ferry.to(x, target)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), VIEWS[view](array))
    assert GPU_FRAMEWORKS[target].on_gpu(y)


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
@pytest.mark.parametrize("target", GPU_FRAMEWORKS)
@pytest.mark.parametrize("source", [name for name in ("torch", "cupy") if name in GPU_FRAMEWORKS])
def test_dense_memory_that_starts_anywhere(source, target, dtype):
    """What the target computes with it afterwards is right too, and does not abort."""
    array = values(dtype, (37,))
    x = GPU_FRAMEWORKS[source].make(array)[1:]
    y = ferry.to(x, target)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), array[1:])
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y + y), array[1:] + array[1:])


def test_elements_that_are_not_aligned():
    cupy = pytest.importorskip("cupy")
    array = np.arange(24.0)
    x = cupy.asarray(array)[1:21].view("complex128").reshape(2, 5).T
    expected = array[1:21].view("complex128").reshape(2, 5).T
    np.testing.assert_array_equal(ferry.to(x, "numpy"), expected)
    np.testing.assert_array_equal(ferry.to(x, "numpy", dtype="complex64"), expected)
    raw = cupy.asarray(np.arange(33, dtype=np.uint8))[1:]
    odd = raw.view("uint8")
    assert ferry.to(odd, "numpy").tolist() == list(range(1, 33))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_source_may_go(source, target):
    array = values("float32", (1 << 18,))
    x = GPU_FRAMEWORKS[source].make(array)
    y = ferry.to(x, target)
    del x
    gc.collect()
    other = [GPU_FRAMEWORKS[source].make(array * 0 + 5) for _ in range(4)]
    GPU_FRAMEWORKS[source].wait()
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), array)
    del other


@pytest.mark.parametrize("target", GPU_FRAMEWORKS)
@pytest.mark.parametrize("source", GPU_FRAMEWORKS)
def test_copied(source, target):
    array = values("float32", (1000, 33))
    x = GPU_FRAMEWORKS[source].make(array)
    y = ferry.to(x, target, copy=True)
    assert GPU_FRAMEWORKS[target].on_gpu(y)
    assert GPU_FRAMEWORKS[target].address(y) != GPU_FRAMEWORKS[source].address(x)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), array)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "uint8", "complex64"])
@pytest.mark.parametrize("target", GPU_FRAMEWORKS)
@pytest.mark.parametrize("source", GPU_FRAMEWORKS)
def test_cast(source, target, dtype):
    array = values("float32", (100, 7)) * 50
    y = ferry.to(GPU_FRAMEWORKS[source].make(array), target, dtype=dtype)
    assert GPU_FRAMEWORKS[target].on_gpu(y)
    np.testing.assert_array_equal(
        GPU_FRAMEWORKS[target].host(y), ferry.to(array, "numpy", dtype=dtype)
    )


@pytest.mark.parametrize("layout", ["dense", "transposed", "every second"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128", "bool"])
@pytest.mark.parametrize("source", GPU_FRAMEWORKS)
def test_to_numpy_and_back(source, dtype, layout):
    array = values(dtype, (257, 130))
    x = GPU_FRAMEWORKS[source].make(array)
    if layout != "dense":
        if source not in ("torch", "cupy"):
            pytest.skip(f"{source} has no strided tensors")
        x, array = VIEWS[layout](x), VIEWS[layout](array)
    down = ferry.to(x, "numpy")
    assert type(down) is np.ndarray
    np.testing.assert_array_equal(down, array)
    up = ferry.to(array, source, device="cuda")
    assert GPU_FRAMEWORKS[source].on_gpu(up) or dtype == "int32"
    np.testing.assert_array_equal(GPU_FRAMEWORKS[source].host(up), array)


@pytest.mark.parametrize("bits", ["conj", "neg"])
@pytest.mark.parametrize("target", [*GPU_FRAMEWORKS, "numpy"])
def test_lazy_bits(target, bits):
    array = values("complex64", (4, 5))
    x = torch.from_numpy(array).cuda().conj()
    expected = array.conj()
    if bits == "neg":
        x, expected = x.imag, expected.imag
    y = ferry.to(x, target)
    host = np.asarray(y) if target == "numpy" else GPU_FRAMEWORKS[target].host(y)
    np.testing.assert_array_equal(host, expected)


def test_the_cuda_array_interface():
    class Given:
        def __init__(self, tensor):
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    array = values("float64", (6, 5))
    for target in GPU_FRAMEWORKS:
        x = Given(torch.from_numpy(array).cuda())
        y = ferry.to(x, target)
        assert GPU_FRAMEWORKS[target].address(y) == x.tensor.data_ptr()
        np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(y), array)
        np.testing.assert_array_equal(ferry.to(x, "numpy"), array)


def test_trees():
    tree = {"a": [GPU_FRAMEWORKS["torch"].make(values("float32", (3,)))], "b": np.arange(4.0)}
    result = ferry.to(tree, "torch", device="cuda")
    assert result["a"][0] is tree["a"][0]
    assert result["b"].is_cuda
    down = ferry.to(tree, "numpy")
    np.testing.assert_array_equal(down["a"][0], tree["a"][0].cpu().numpy())


def test_pinned_memory_is_host_memory():
    x = torch.arange(10.0).pin_memory()
    y = ferry.to(x, "numpy")
    y[0] = 42
    assert x[0] == 42
    up = ferry.to(x, "torch", device="cuda")
    assert up.is_cuda
    assert (up.cpu() == x).all()
