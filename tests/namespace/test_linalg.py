"""Products, the extensions linalg and fft for TensorFlow, against array-api-strict."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from support.strict_namespace import (
    ANY,
    COMPLEX,
    FLOATING,
    NUMERIC,
    REAL_FLOATING,
    check_strict,
    values,
    xp,
)

import tensorferry as ferry

SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((2, 1, 2, 3), (5, 3, 2)), ((4, 2, 3), (3,)), ((3,), (4, 3, 2)), ((0, 3), (3, 2)),
    ((2, 0), (0, 2)),
]  # fmt: skip


def matrices(dtype: str, shape: tuple[int, ...] = (2, 4, 4), seed: object = 0) -> np.ndarray:
    return values(dtype, shape, seed=seed) + (np.eye(4, dtype=dtype) * 5 if shape[-1] == 4 else 0)


def hermitian(dtype: str) -> np.ndarray:
    x = matrices(dtype)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(4, dtype=dtype)


@pytest.mark.parametrize("name", ["matmul", "linalg.matmul"])
def test_matrix_products(name):
    for dtype in NUMERIC:
        for one, other in SHAPES:
            check_strict(name, values(dtype, one), values(dtype, other, seed=1))
    check_strict(name, values("int8", (2, 3)), values("uint8", (3, 2)))
    check_strict(name, values("float32", (2, 3)), values("complex128", (3, 2)))
    for wrong in ((xp.ones(()), xp.ones(2)), (xp.ones((2, 3)), xp.ones((2, 3)))):
        with pytest.raises(ferry.InvalidArgumentError, match="matmul"):
            xp.matmul(*wrong)


@pytest.mark.parametrize("name", ["tensordot", "linalg.tensordot"])
def test_tensordot(name):
    for dtype in NUMERIC:
        x, y = values(dtype, (2, 3, 4)), values(dtype, (3, 4, 5), seed=1)
        check_strict(name, x, y)
        check_strict(name, x, y, axes=0)
        check_strict(name, x, values(dtype, (4, 2)), axes=1)
        check_strict(name, x, y, axes=((1, 2), (0, 1)))
        check_strict(name, x, y, axes=((-1,), (1,)))
    with pytest.raises(ferry.InvalidArgumentError, match="tensordot"):
        xp.tensordot(xp.ones((2, 3)), xp.ones((2, 3)), axes=1)


@pytest.mark.parametrize("name", ["vecdot", "linalg.vecdot"])
def test_vecdot(name):
    for dtype in NUMERIC:
        check_strict(name, values(dtype, (3, 4)), values(dtype, (4,), seed=1))
        check_strict(name, values(dtype, (3, 4)), values(dtype, (3, 4), seed=1), axis=-2)
        check_strict(name, values(dtype, (2, 1, 4)), values(dtype, (3, 4), seed=1))
    with pytest.raises(ferry.InvalidArgumentError, match="vecdot"):
        xp.vecdot(xp.ones(2), xp.ones(3))


@pytest.mark.parametrize("name", ["matrix_transpose", "linalg.matrix_transpose"])
def test_transposed(name):
    for dtype in ANY:
        check_strict(name, values(dtype, (2, 3, 4)))
    with pytest.raises(ferry.InvalidArgumentError, match="matrix_transpose"):
        xp.matrix_transpose(xp.ones(3))


@pytest.mark.parametrize("dtype", FLOATING)
def test_decompositions_that_are_unique(dtype):
    x = matrices(dtype)
    for name in ("det", "inv", "slogdet", "svdvals", "matrix_rank", "pinv"):
        check_strict(f"linalg.{name}", x)
        check_strict(f"linalg.{name}", x[0])
    check_strict("linalg.pinv", values(dtype, (2, 3, 5)))
    low = values(dtype, (4, 1)) @ values(dtype, (1, 4), seed=1)
    check_strict("linalg.pinv", low, rtol=1e-3)
    check_strict("linalg.matrix_rank", low)
    check_strict("linalg.matrix_rank", x, rtol=0.5)
    h = hermitian(dtype)
    check_strict("linalg.cholesky", h)
    check_strict("linalg.cholesky", h, upper=True)
    check_strict("linalg.eigvalsh", h)
    for power in (0, 1, 2, 3, 5, -1, -2):
        check_strict("linalg.matrix_power", x, power)


@pytest.mark.parametrize("dtype", FLOATING)
def test_solutions(dtype):
    x = matrices(dtype)
    check_strict("linalg.solve", x, values(dtype, (2, 4, 3)))
    check_strict("linalg.solve", x[0], values(dtype, (4,)))
    check_strict("linalg.solve", x, values(dtype, (4,)))
    check_strict("linalg.solve", x[0], values(dtype, (5, 4, 2)))
    check_strict("linalg.solve", x[:, None], values(dtype, (3, 4, 2)))


@pytest.mark.parametrize("dtype", FLOATING)
def test_decompositions_by_what_they_multiply_to(dtype):
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-10

    def close(got, want) -> None:
        assert got.dtype.name == dtype
        np.testing.assert_allclose(got.numpy(), want, atol=tolerance * 100, rtol=tolerance)

    for shape in ((2, 4, 4), (5, 3), (3, 5)):
        x = values(dtype, shape)
        t = tf.constant(x)
        for full in (False, True):
            u, s, vh = xp.linalg.svd(t, full_matrices=full)
            want = np.linalg.svd(x, full_matrices=full)
            assert [tuple(part.shape) for part in (u, s, vh)] == [part.shape for part in want]
            np.testing.assert_allclose(s.numpy(), want[1], rtol=tolerance * 10)
            k = s.shape[-1]
            close((u[..., :k] * xp.astype(s, u.dtype)[..., None, :]) @ vh[..., :k, :], x)
        for mode in ("reduced", "complete"):
            q, r = xp.linalg.qr(t, mode=mode)
            want = np.linalg.qr(x, mode=mode)
            assert (tuple(q.shape), tuple(r.shape)) == (want[0].shape, want[1].shape)
            close(q @ r, x)
            assert np.allclose(np.tril(r.numpy(), -1), 0, atol=tolerance)
    h = hermitian(dtype)
    found = xp.linalg.eigh(tf.constant(h))
    np.testing.assert_allclose(found.eigenvalues.numpy(), np.linalg.eigvalsh(h), rtol=1e-3)
    v = found.eigenvectors
    close((v * xp.astype(found.eigenvalues, v.dtype)[..., None, :]) @ tf.linalg.adjoint(v), h)


@pytest.mark.parametrize("dtype", ANY)
def test_diagonals(dtype):
    for shape in ((3, 5), (2, 5, 3)):
        for offset in (-2, -1, 0, 1, 2, 4):
            check_strict("linalg.diagonal", values(dtype, shape), offset=offset)
            if dtype != "bool":
                check_strict("linalg.trace", values(dtype, shape, small=True), offset=offset)
    if dtype != "bool":
        check_strict("linalg.outer", values(dtype, (3,)), values(dtype, (4,), seed=1))
        check_strict("linalg.cross", values(dtype, (2, 3)), values(dtype, (2, 3), seed=1))
        check_strict("linalg.cross", values(dtype, (3, 2)), values(dtype, (3, 2), seed=1), axis=-2)
        check_strict("linalg.cross", values(dtype, (4, 1, 3)), values(dtype, (2, 3), seed=1))


@pytest.mark.parametrize("dtype", FLOATING)
def test_norms(dtype):
    x = values(dtype, (2, 3, 4))
    for ord in (1, 2, 3, 0.5, 0, -1, math.inf, -math.inf):
        for axis in (None, 0, -1, (0, 2)):
            for keepdims in (False, True):
                check_strict("linalg.vector_norm", x, axis=axis, keepdims=keepdims, ord=ord)
    for ord in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        for keepdims in (False, True):
            check_strict("linalg.matrix_norm", x, keepdims=keepdims, ord=ord)
    with pytest.raises(ferry.InvalidArgumentError, match="ord"):
        xp.linalg.matrix_norm(tf.constant(x), ord=7)


def test_what_linalg_refuses():
    for name in ("det", "inv", "cholesky", "eigh", "slogdet"):
        function = getattr(xp.linalg, name)
        with pytest.raises(ferry.InvalidArgumentError, match=f"{name} takes square"):
            function(xp.ones((2, 3)))
        with pytest.raises(ferry.InvalidArgumentError, match=name):
            function(xp.ones(3))
        with pytest.raises(TypeError, match=name):
            function(xp.ones((2, 2), dtype=xp.int32))
        with pytest.raises(TypeError, match=name):
            function(xp.ones((2, 2), dtype=xp.float16))
    with pytest.raises(ferry.InvalidArgumentError, match="mode"):
        xp.linalg.qr(xp.ones((2, 2)), mode="raw")
    with pytest.raises(AttributeError, match=r"no function xp\.linalg\.einsum\nhint: "):
        xp.linalg.einsum
    with pytest.raises(AttributeError, match=r"no function xp\.fft\.dct\nhint: "):
        xp.fft.dct


ONE_AXIS = {
    "fft": FLOATING, "ifft": FLOATING, "rfft": REAL_FLOATING, "irfft": COMPLEX, "hfft": COMPLEX,
    "ihfft": REAL_FLOATING,
}  # fmt: skip
SEVERAL = {"fftn": FLOATING, "ifftn": FLOATING, "rfftn": REAL_FLOATING, "irfftn": COMPLEX}


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms(norm):
    for name, types in ONE_AXIS.items():
        for dtype in types:
            if name in ("fft", "ifft") and dtype in REAL_FLOATING:
                continue
            x = values(dtype, (3, 6))
            for n in (None, 4, 5, 8):
                for axis in (-1, 0):
                    check_strict(f"fft.{name}", x, n=n, axis=axis, norm=norm)
    for name, types in SEVERAL.items():
        for dtype in types:
            if name in ("fftn", "ifftn") and dtype in REAL_FLOATING:
                continue
            x = values(dtype, (3, 4, 6))
            check_strict(f"fft.{name}", x, norm=norm)
            check_strict(f"fft.{name}", x, axes=(0, 2), norm=norm)
            check_strict(f"fft.{name}", x, s=(5, 4), axes=(2, 1), norm=norm)


def test_transforms_of_real_values():
    for name in ("fft", "ifft", "fftn", "ifftn"):
        for dtype in REAL_FLOATING:
            x = values(dtype, (3, 6))
            got = getattr(xp.fft, name)(tf.constant(x))
            np.testing.assert_allclose(got.numpy(), getattr(np.fft, name)(x), atol=1e-4)


def test_frequencies():
    for n in (1, 4, 5, 8):
        for name in ("fftfreq", "rfftfreq"):
            check_strict(f"fft.{name}", n, d=0.5, dtype="float64")
            check_strict(f"fft.{name}", n, dtype="float32")
    x = values("float32", (3, 4))
    for axes in (None, 0, (1,), (0, 1)):
        check_strict("fft.fftshift", x, axes=axes)
        check_strict("fft.ifftshift", x, axes=axes)
    with pytest.raises(ferry.InvalidArgumentError, match="norm"):
        xp.fft.fft(xp.ones(3), norm="loud")
