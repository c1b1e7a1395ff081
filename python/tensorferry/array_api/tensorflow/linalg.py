"""The standard's extension `linalg`: decompositions, solutions, norms, and parts of matrices.

TensorFlow decomposes float32, float64 and the complex types. A singular matrix is an
`InvalidArgumentError` of TensorFlow's in `inv` and `solve`.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, NamedTuple, NoReturn

from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.dtypes import FLOATING, NUMERIC, Kind
from tensorferry.array_api.tensorflow.products import matmul, matrix_transpose, tensordot, vecdot
from tensorferry.array_api.tensorflow.reductions import sum as sum_of
from tensorferry.array_api.tensorflow.tensors import (
    Axis,
    DType,
    Tensor,
    all_axes,
    axis_back,
    axis_last,
    cast,
    common_shape,
    invalid,
    missing,
    one_axis,
    rank,
    sizes,
    tensor,
    tf,
    together,
    widened,
)

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

_DECOMPOSED = Kind(
    "float32, float64 and complex", frozenset({tf.float32, tf.float64, *dtypes.COMPLEXES})
)


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _matrices(name: str, x: Tensor, kind: Kind = _DECOMPOSED, square: bool = False) -> Tensor:
    x = tensor(name, x, kind)
    if rank(name, x) < 2:
        raise invalid(f"{name} takes a matrix or a stack of them", "give it two dimensions")
    rows, columns = x.shape[-2:]
    if square and None not in (rows, columns) and rows != columns:
        raise invalid(
            f"{name} takes square matrices, not {rows} by {columns}", "its last sizes must be equal"
        )
    return x


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The Cholesky decomposition of x."""
    lower = tf.linalg.cholesky(_matrices("cholesky", x, square=True))
    return tf.linalg.adjoint(lower) if upper else lower


def det(x: Tensor, /) -> Tensor:
    """The determinant."""
    return tf.linalg.det(_matrices("det", x, square=True))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its magnitude."""
    sign, logarithm = tf.linalg.slogdet(_matrices("slogdet", x, square=True))
    return SlogdetResult(sign, tf.math.real(logarithm))


def inv(x: Tensor, /) -> Tensor:
    """The inverse."""
    return tf.linalg.inv(_matrices("inv", x, square=True))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution of x1 @ x = x2; an x2 of one dimension is one vector."""
    x, y = together(
        "solve", _DECOMPOSED, _matrices("solve", x1, square=True), tensor("solve", x2, _DECOMPOSED)
    )
    vector = rank("solve", y) == 1
    y = y[:, None] if vector else y
    if rank("solve", x) + rank("solve", y) > 4:
        shape = common_shape("solve", x[..., 0, 0], y[..., 0, 0])
        x = tf.broadcast_to(x, tf.concat([shape, sizes(x)[-2:]], 0))
        y = tf.broadcast_to(y, tf.concat([shape, sizes(y)[-2:]], 0))
    result = tf.linalg.solve(x, y)
    return tf.squeeze(result, -1) if vector else result


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """An orthonormal matrix and an upper triangle whose product is x."""
    if mode not in ("reduced", "complete"):
        raise invalid(f"qr was given mode={mode!r}", 'pass "reduced" or "complete"')
    return QRResult(*tf.linalg.qr(_matrices("qr", x), full_matrices=mode == "complete"))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """U, the singular values from the largest on, and Vh, with x = (U * S) @ Vh."""
    values, left, right = tf.linalg.svd(_matrices("svd", x), full_matrices=full_matrices)
    return SVDResult(left, values, tf.linalg.adjoint(right))


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, from the largest on."""
    return tf.linalg.svd(_matrices("svdvals", x), compute_uv=False)


def eigh(x: Tensor, /) -> EighResult:
    """The eigenvalues of a Hermitian matrix, from the smallest on, and its eigenvectors."""
    values, vectors = tf.linalg.eigh(_matrices("eigh", x, square=True))
    return EighResult(tf.math.real(values), vectors)


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of a Hermitian matrix, from the smallest on."""
    return tf.math.real(tf.linalg.eigvalsh(_matrices("eigvalsh", x, square=True)))


def _tolerance(x: Tensor, values: Tensor, rtol: float | Tensor | None) -> Tensor:
    """The threshold below which singular values count as zero."""
    if rtol is None:
        size = tf.cast(tf.reduce_max(tf.stack(sizes(x)[-2:])), values.dtype)
        limit = size * dtypes.finfo(values.dtype).eps
    else:
        limit = tf.cast(rtol, values.dtype)[..., None]
    return limit * tf.reduce_max(values, axis=-1, keepdims=True)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The number of singular values larger than rtol times the largest."""
    x = _matrices("matrix_rank", x)
    values = svdvals(x)
    return tf.reduce_sum(tf.cast(values > _tolerance(x, values, rtol), tf.int64), axis=-1)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverse, without singular values up to rtol times the largest."""
    x = _matrices("pinv", x)
    left, values, right = svd(x, full_matrices=False)
    kept = values > _tolerance(x, values, rtol)
    inverse = tf.where(kept, 1 / tf.where(kept, values, tf.ones_like(values)), 0)
    scaled = tf.linalg.adjoint(right) * cast(inverse, x.dtype)[..., None, :]
    return tf.matmul(scaled, left, adjoint_b=True)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The matrix multiplied with itself n times; of its inverse, if n is negative."""
    x = _matrices("matrix_power", x, FLOATING, square=True)
    base = inv(x) if n < 0 else x
    result = tf.eye(sizes(x)[-1], batch_shape=sizes(x)[:-2], dtype=x.dtype)
    n = builtins.abs(n)
    while n:
        if n % 2:
            result = tf.matmul(result, base)
        n //= 2
        base = tf.matmul(base, base) if n else base
    return result


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of each matrix."""
    x = _matrices("diagonal", x, dtypes.ANY)
    rows, columns = sizes(x)[-2:]
    start = builtins.max(-offset, 0)
    length = tf.maximum(tf.minimum(rows - start, columns - builtins.max(offset, 0)), 0)
    places = tf.range(start, start + length)
    places = tf.stack([places, places + offset], axis=1)
    swapped = tf.transpose(x, [*range(x.shape.rank - 2, x.shape.rank), *range(x.shape.rank - 2)])
    chosen = tf.gather_nd(swapped, places)
    return tf.transpose(chosen, [*range(1, x.shape.rank - 1), 0])


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sum of a diagonal of each matrix."""
    x = _matrices("trace", x, NUMERIC)
    return sum_of(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of each element of one vector with each of another."""
    x, y = together("outer", NUMERIC, tensor("outer", x1, NUMERIC), tensor("outer", x2, NUMERIC))
    if rank("outer", x) != 1 or rank("outer", y) != 1:
        raise invalid("outer takes tensors of one dimension", "pass xp.reshape(x, (-1,))")
    return x[:, None] * y[None, :]


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis."""
    x, y = together("cross", NUMERIC, tensor("cross", x1, NUMERIC), tensor("cross", x2, NUMERIC))
    dimensions = builtins.max(rank("cross", x), rank("cross", y))
    place = one_axis("cross", axis, dimensions)
    from_end = place - dimensions
    lines = [axis_last(z, rank("cross", z) + from_end, rank("cross", z)) for z in (x, y)]
    if builtins.any(line.shape[-1] != 3 for line in lines):
        raise invalid("cross takes vectors of three elements", "check the axis")
    (a, b, c), (d, e, f) = (tf.unstack(line, axis=-1) for line in lines)
    result = tf.stack([b * f - c * e, c * d - a * f, a * e - b * d], axis=-1)
    return axis_back(result, place, dimensions)


def vector_norm(
    x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm of vectors along axes: any order, infinities, and 0 for the count of nonzeros."""
    x = tensor("vector_norm", x, FLOATING)
    places = all_axes("vector_norm", axis, rank("vector_norm", x))
    over: dict[str, Any] = {"axis": places, "keepdims": keepdims}
    return cast(_norm(tf.abs(widened(x)), ord, over), dtypes.real_of(x.dtype))


def _norm(size: Tensor, ord: float, over: dict[str, Any]) -> Tensor:
    if ord == math.inf:
        return tf.reduce_max(size, **over)
    if ord == -math.inf:
        return tf.reduce_min(size, **over)
    if ord == 0:
        return tf.reduce_sum(tf.cast(tf.not_equal(size, 0), size.dtype), **over)
    if ord == 1:
        return tf.reduce_sum(size, **over)
    if ord == 2:
        return tf.sqrt(tf.reduce_sum(size * size, **over))
    return tf.reduce_sum(size**ord, **over) ** (1 / ord)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise invalid(f"matrix_norm was given ord={ord!r}", 'pass "fro", "nuc", 1, 2 or inf')
    x = _matrices("matrix_norm", x, FLOATING)
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
        if ord == "nuc":
            result = tf.reduce_sum(values, axis=-1)
        else:
            result = (tf.reduce_max if ord == 2 else tf.reduce_min)(values, axis=-1)
    else:
        sums = tf.reduce_sum(tf.abs(x), axis=-2 if ord in (1, -1) else -1)
        result = (tf.reduce_max if ord > 0 else tf.reduce_min)(sums, axis=-1)
    return result[..., None, None] if keepdims else result


def __getattr__(name: str) -> NoReturn:
    missing("linalg", name)
