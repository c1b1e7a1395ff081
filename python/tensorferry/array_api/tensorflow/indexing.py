"""Choosing elements: by index, by mask, and where something is not zero."""

from __future__ import annotations

from tensorferry.array_api.tensorflow.dtypes import ANY, BOOLEAN, INTEGER
from tensorferry.array_api.tensorflow.reductions import truth
from tensorferry.array_api.tensorflow.tensors import (
    Scalar,
    Tensor,
    axis_back,
    axis_last,
    invalid,
    one_axis,
    rank,
    sizes,
    tensor,
    tf,
    together,
)


def _from_front(indices: Tensor, length: int | Tensor) -> Tensor:
    """Indices as int64; negative indices count from the end."""
    places = tf.cast(indices, tf.int64)
    return tf.where(places < 0, places + tf.cast(length, tf.int64), places)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices at some indices along an axis."""
    x, indices = tensor("take", x), tensor("take", indices, INTEGER)
    dimensions = rank("take", x)
    if axis is None and dimensions != 1:
        raise invalid(f"take needs an axis for a tensor of {dimensions} dimensions", "pass axis=")
    place = one_axis("take", 0 if axis is None else axis, dimensions)
    return tf.gather(x, _from_front(indices, sizes(x)[place]), axis=place)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements at separate indices for each line along an axis."""
    x = tensor("take_along_axis", x)
    indices = tensor("take_along_axis", indices, INTEGER)
    dimensions = rank("take_along_axis", x)
    if rank("take_along_axis", indices) != dimensions:
        raise invalid(
            f"take_along_axis was given indices of {rank('take_along_axis', indices)} dimensions "
            f"for a tensor of {dimensions}",
            "give both as many dimensions",
        )
    place = one_axis("take_along_axis", axis, dimensions)
    x, indices = axis_last(x, place, dimensions), axis_last(indices, place, dimensions)
    *outer, length = sizes(x)
    *inner, wanted = sizes(indices)
    batch = [
        other if isinstance(one, int) and one == 1 else one
        for one, other in zip(outer, inner, strict=True)
    ]
    chosen = tf.gather(
        tf.broadcast_to(x, [*batch, length]),
        tf.broadcast_to(_from_front(indices, length), [*batch, wanted]),
        batch_dims=dimensions - 1,
        axis=dimensions - 1,
    )
    return axis_back(chosen, place, dimensions)


def where(condition: Tensor, x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
    """Elements of x1 where the condition holds, and of x2 elsewhere."""
    condition = tensor("where", condition, BOOLEAN)
    return tf.where(condition, *together("where", ANY, x1, x2))


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of nonzero elements, one tensor for each axis."""
    x = tensor("nonzero", x)
    if rank("nonzero", x) == 0:
        raise invalid("nonzero takes a tensor with dimensions", "pass xp.reshape(x, (1,))")
    return tuple(tf.unstack(tf.where(truth(x)), num=rank("nonzero", x), axis=1))
