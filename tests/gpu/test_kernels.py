"""Our kernels give the bits that the host's engine gives, for every pair of types and layout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from support.dtypes import NAMED

import tensorferry as ferry

TORCH_TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
]


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def patterns(name: str) -> np.ndarray:
    """Bits of every kind: each exponent, NaNs, infinities, ties, ends of ranges."""
    size = numpy_type(name).itemsize
    generator = np.random.default_rng(3)
    raw = generator.integers(0, 256, 40_000 * size, dtype=np.uint8)
    if name == "bool":
        raw &= 1
    special = np.array([0, -0.0, 1, -1, 0.5, 1.5, 2.5, 127, 128, 255, 256, 65504, 65520, 1e9, -1e9])
    more = np.concatenate([special, special * 1e20, special * 1e-20, [np.inf, -np.inf, np.nan]])
    with np.errstate(all="ignore"):
        tail = more.astype("float32").astype(numpy_type(name))
    return np.concatenate([raw.view(numpy_type(name)), tail])


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def upload(array: np.ndarray, name: str) -> torch.Tensor:
    host = torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
    return host.cuda().view(getattr(torch, name)).reshape(array.shape)


@pytest.mark.parametrize("after", TORCH_TYPES)
@pytest.mark.parametrize("before", TORCH_TYPES)
def test_casts(before, after):
    array = patterns(before)
    if not NAMED[before].casts_to(NAMED[after]):
        with pytest.raises(ferry.UnsupportedDTypeError, match=r"x\.real"):
            ferry.to(upload(array, before), "torch", dtype=after)
        return
    expected = ferry.to(array, "numpy", dtype=after)
    found = ferry.to(upload(array, before), "torch", dtype=after)
    assert found.is_cuda
    raw = (
        found.view(torch.uint8).cpu().numpy() if found.dtype != torch.uint8 else found.cpu().numpy()
    )
    assert np.array_equal(raw.reshape(-1), bits(expected))


@pytest.mark.parametrize("after", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("before", ["uint8", "bfloat16", "float32", "int64"])
@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 3), (1, 1030), (4, 70_001), (3, 900_000)])
def test_casts_of_any_length_and_start(start, count, before, after):
    array = np.resize(patterns(before), start + count)
    expected = ferry.to(array[start:].copy(), "numpy", dtype=after)
    found = ferry.to(upload(array, before)[start:], "torch", dtype=after)
    assert np.array_equal(found.view(torch.uint8).cpu().numpy().reshape(-1), bits(expected))


LAYOUTS = {
    "transposed": lambda x: x.T,
    "transposed slice": lambda x: x[3:, 5:].T,
    "transposed columns": lambda x: x[:, : x.shape[1] // 2].T,
    "left columns": lambda x: x[:, : x.shape[1] // 2],
    "inner": lambda x: x[1:, 1:],
    "every third": lambda x: x[::3, 1::2],
    "planes turned": lambda x: x.reshape(7, -1, x.shape[1]).swapaxes(1, 2),
    "three turned": lambda x: x.reshape(-1, 7, x.shape[1]).swapaxes(1, 2),
    "four turned": lambda x: x.reshape(7, -1, x.shape[1] // 2, 2).swapaxes(0, 2),
}


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(
    "shape", [(21, 4), (7 * 33, 130), (7 * 128, 512), (7, 6), (525, 302), (2996, 18), (14, 2000)]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packing(layout, shape, size):
    name = {1: "uint8", 2: "int16", 4: "float32", 8: "int64", 16: "complex128"}[size]
    count = int(np.prod(shape))
    array = np.random.default_rng(1).integers(0, 256, count * size, dtype=np.uint8)
    array = array.view(numpy_type(name)).reshape(shape)
    x = LAYOUTS[layout](upload(array, name))
    found = ferry.to(x, "numpy")
    assert np.array_equal(bits(found), bits(LAYOUTS[layout](array)))


@pytest.mark.parametrize("after", ["float16", "float64", "int32", "complex64"])
@pytest.mark.parametrize("before", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packing_and_casting(layout, before, after):
    shape = (7 * 40, 96)
    array = np.resize(patterns(before), shape)
    expected = ferry.to(np.ascontiguousarray(LAYOUTS[layout](array)), "numpy", dtype=after)
    x = LAYOUTS[layout](upload(array, before))
    found = ferry.to(x, "torch", dtype=after)
    assert found.is_cuda
    assert np.array_equal(bits(ferry.to(found, "numpy")), bits(expected))


def test_a_plane_that_is_wider_than_a_grid():
    x = torch.arange(16 * 9_000_000, dtype=torch.int32, device="cuda").reshape(16, -1)
    assert torch.equal(ferry.to(x.T, "torch", copy=True), x.T)


def test_more_elements_than_32_bits_count():
    x = torch.randint(0, 255, (2 * (2**32 + 1000),), dtype=torch.uint8, device="cuda")
    found = ferry.to(x[::2], "torch", copy=True)
    assert found.is_contiguous()
    assert torch.equal(found, x[::2])


def test_rows_that_run_backwards():
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(300 * 200, dtype=cupy.float32).reshape(300, 200)
    for view in (x[::-1].T, x[:, ::-1], x[::-1, ::-1].T):
        np.testing.assert_array_equal(ferry.to(view, "numpy"), view.get())


def test_a_broadcast_is_packed():
    x = torch.arange(6.0, device="cuda").reshape(1, 6).expand(5, 6)
    np.testing.assert_array_equal(ferry.to(x, "numpy"), np.broadcast_to(np.arange(6.0), (5, 6)))
