"""Products of vectors and matrices, for all numeric types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorferry.array_api.tensorflow.dtypes import INTEGER, NUMERIC
from tensorferry.array_api.tensorflow.tensors import (
    Tensor,
    all_axes,
    count,
    invalid,
    rank,
    sizes,
    tensor,
    tf,
    together,
)


def _multiply(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product; TensorFlow has it for two integer types, in which the low bits agree."""
    dtype = x.dtype
    if dtype not in INTEGER.members or dtype in (tf.int32, tf.int64):
        return tf.matmul(x, y)
    work = tf.int32 if dtype.size < 4 else tf.int64
    return tf.cast(tf.matmul(tf.cast(x, work), tf.cast(y, work)), dtype)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product; one dimension is a vector, more than two are stacks of matrices."""
    x1, x2 = (tensor("matmul", x, NUMERIC) for x in (x1, x2))
    x, y = together("matmul", NUMERIC, x1, x2)
    first, second = rank("matmul", x), rank("matmul", y)
    if not first or not second:
        raise invalid("matmul takes tensors with dimensions", "use xp.multiply")
    x = x[None, :] if first == 1 else x
    y = y[:, None] if second == 1 else y
    inner = x.shape[-1], y.shape[-2]
    if None not in inner and inner[0] != inner[1]:
        raise invalid(
            f"matmul cannot multiply the shapes {tuple(x1.shape)} and {tuple(x2.shape)}",
            "the last size of x1 and the one before the last of x2 must be equal",
        )
    result = _multiply(x, y)
    if second == 1:
        result = tf.squeeze(result, -1)
    return tf.squeeze(result, -2 if second > 1 else -1) if first == 1 else result


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    x = tensor("matrix_transpose", x)
    if rank("matrix_transpose", x) < 2:
        raise invalid(
            "matrix_transpose takes a matrix or a stack of them", "give it two dimensions"
        )
    return tf.linalg.matrix_transpose(x)


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Products summed over axes: the last of x1 and the first of x2, or those that are named."""
    x, y = together(
        "tensordot", NUMERIC, tensor("tensordot", x1, NUMERIC), tensor("tensordot", x2, NUMERIC)
    )
    first, second = rank("tensordot", x), rank("tensordot", y)
    if isinstance(axes, int):
        pairs: tuple[Sequence[int], Sequence[int]] = range(first - axes, first), range(axes)
    else:
        pairs = axes
    left, right = (
        all_axes("tensordot", tuple(part), dimensions)
        for part, dimensions in zip(pairs, (first, second), strict=True)
    )
    if [x.shape[place] for place in left] != [y.shape[place] for place in right]:
        raise invalid(
            f"tensordot cannot sum over axes {left} of {tuple(x.shape)} and {right} of "
            f"{tuple(y.shape)}",
            "the sizes of the axes must be equal",
        )
    rows = [place for place in range(first) if place not in left]
    columns = [place for place in range(second) if place not in right]
    heights: list[Any] = [sizes(x)[place] for place in rows]
    widths: list[Any] = [sizes(y)[place] for place in columns]
    inner = count([sizes(x)[place] for place in left])
    product = _multiply(
        tf.reshape(tf.transpose(x, rows + left), [count(heights), inner]),
        tf.reshape(tf.transpose(y, right + columns), [inner, count(widths)]),
    )
    return tf.reshape(product, heights + widths)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot product of vectors along an axis, the first conjugated; the rest is broadcast."""
    x, y = together("vecdot", NUMERIC, tensor("vecdot", x1, NUMERIC), tensor("vecdot", x2, NUMERIC))
    shortest = min(rank("vecdot", x), rank("vecdot", y))
    if not -shortest <= axis < 0:
        if rank("vecdot", x) != rank("vecdot", y) or not 0 <= axis < shortest:
            raise invalid(
                f"vecdot was given axis {axis}",
                f"count it from the end, from {-shortest} to -1, as both tensors have it",
            )
        axis -= shortest
    if None not in (x.shape[axis], y.shape[axis]) and x.shape[axis] != y.shape[axis]:
        raise invalid(
            f"vecdot was given vectors of {x.shape[axis]} and {y.shape[axis]} elements",
            "the sizes along the axis must be equal",
        )
    return tf.reduce_sum(tf.math.conj(x) * y, axis=axis)
