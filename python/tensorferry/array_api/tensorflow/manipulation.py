"""Manipulation of shapes: joining, splitting, transposing, repeating, broadcasting."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

from tensorferry._native import CopyRequiredError
from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.dtypes import INTEGER
from tensorferry.array_api.tensorflow.tensors import (
    Axis,
    Tensor,
    all_axes,
    broadcast_sizes,
    cast,
    common_shape,
    invalid,
    one_axis,
    rank,
    sizes,
    tensor,
    tf,
)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The broadcast shape of shapes."""
    return broadcast_sizes("broadcast_shapes", *shapes)


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """The tensor repeated to a larger shape."""
    x = tensor("broadcast_to", x)
    wanted = tuple(shape)
    known = x.shape.is_fully_defined() and builtins.all(isinstance(size, int) for size in wanted)
    if known and broadcast_sizes("broadcast_to", x.shape.as_list(), wanted) != wanted:
        raise invalid(
            f"broadcast_to cannot make {wanted} of {tuple(x.shape.as_list())}",
            "sizes must be equal, or 1 in the tensor, counted from the last dimension",
        )
    return tf.broadcast_to(x, list(wanted))


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The tensors in their common shape."""
    found = [tensor("broadcast_arrays", x) for x in arrays]
    if not found:
        return ()
    shape = common_shape("broadcast_arrays", *found)
    return tuple(tf.broadcast_to(x, shape) for x in found)


def _common(name: str, arrays: Sequence[Tensor]) -> list[Tensor]:
    found = [tensor(name, x) for x in arrays]
    if not found:
        raise invalid(f"{name} needs a tensor", "pass at least one")
    common = dtypes.promote(name, *(x.dtype for x in found))
    return [cast(x, common) for x in found]


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; None flattens them first."""
    found = _common("concat", arrays)
    if axis is None:
        return tf.concat([tf.reshape(x, [-1]) for x in found], 0)
    return tf.concat(found, one_axis("concat", axis, rank("concat", found[0])))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Tensors joined along a new axis."""
    found = _common("stack", arrays)
    return tf.stack(found, one_axis("stack", axis, rank("stack", found[0]) + 1))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    x = tensor("unstack", x)
    return tuple(tf.unstack(x, axis=one_axis("unstack", axis, rank("unstack", x))))


def expand_dims(x: Tensor, /, axis: int | Sequence[int] = 0) -> Tensor:
    """New axes of size one, at indices of the result."""
    x = tensor("expand_dims", x)
    added = len(axis) if isinstance(axis, Sequence) else 1
    for place in sorted(all_axes("expand_dims", axis, rank("expand_dims", x) + added)):
        x = tf.expand_dims(x, place)
    return x


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """The tensor without axes of size one."""
    x = tensor("squeeze", x)
    places = all_axes("squeeze", axis, rank("squeeze", x))
    known = x.shape.as_list()
    for place in places:
        if known[place] not in (1, None):
            raise invalid(
                f"squeeze was given axis {place}, whose size is {known[place]}",
                "only axes of size 1 can go",
            )
    return tf.squeeze(x, places) if places else x


def flip(x: Tensor, /, *, axis: Axis = None) -> Tensor:
    """The tensor reversed along axes."""
    x = tensor("flip", x)
    return tf.reverse(x, all_axes("flip", axis, rank("flip", x)))


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """The axes in another order."""
    x = tensor("permute_dims", x)
    dimensions = rank("permute_dims", x)
    places = all_axes("permute_dims", tuple(axes), dimensions)
    if len(places) != dimensions:
        raise invalid(
            f"permute_dims was given {len(places)} axes and a tensor of {dimensions}",
            "name every axis once",
        )
    return tf.transpose(x, places)


def moveaxis(x: Tensor, source: Axis, destination: Axis, /) -> Tensor:
    """Axes moved to other indices; the other axes keep their order."""
    x = tensor("moveaxis", x)
    dimensions = rank("moveaxis", x)
    origins = all_axes("moveaxis", source, dimensions)
    targets = all_axes("moveaxis", destination, dimensions)
    if len(origins) != len(targets):
        raise invalid(
            f"moveaxis was given {len(origins)} sources and {len(targets)} destinations",
            "pass as many of either",
        )
    order = [place for place in range(dimensions) if place not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return tf.transpose(x, order)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: Any = None) -> Tensor:
    """The same elements in another shape."""
    x = tensor("reshape", x)
    wanted = [shape] if isinstance(shape, int) else list(shape)
    if copy is False and not tf.executing_eagerly():
        raise CopyRequiredError(
            "reshape cannot guarantee copy=False in a graph\nhint: leave out copy=False"
        )
    result = tf.reshape(x, wanted)
    return tf.raw_ops.DeepCopy(x=result) if copy else result


def roll(x: Tensor, /, shift: int | Sequence[int], *, axis: Axis = None) -> Tensor:
    """Elements shifted cyclically along axes."""
    x = tensor("roll", x)
    if axis is None:
        if not isinstance(shift, int):
            raise invalid("roll was given several shifts without an axis", "pass axis=")
        return tf.reshape(tf.roll(tf.reshape(x, [-1]), shift, 0), sizes(x))
    given = list(axis) if isinstance(axis, Sequence) else [axis]
    places = [one_axis("roll", each, rank("roll", x)) for each in given]
    shifts = list(shift) if isinstance(shift, Sequence) else [shift] * len(places)
    if len(shifts) != len(places):
        raise invalid(
            f"roll was given {len(shifts)} shifts and {len(places)} axes", "pass as many of either"
        )
    return tf.roll(x, shifts, places) if places else x


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated; without an axis the tensor is flattened."""
    x = tensor("repeat", x)
    if axis is None:
        x, place = tf.reshape(x, [-1]), 0
    else:
        place = one_axis("repeat", axis, rank("repeat", x))
    length = sizes(x)[place]
    if isinstance(repeats, int):
        if repeats < 0:
            raise invalid(f"repeat was given {repeats} repeats", "pass 0 or more")
        chosen = tf.range(length * repeats) // builtins.max(repeats, 1)
    else:
        times = tf.cast(tensor("repeat", repeats, INTEGER), tf.int32)
        chosen = tf.repeat(tf.range(length), tf.broadcast_to(times, [length]))
    return tf.gather(x, chosen, axis=place)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """The tensor repeated along each axis."""
    x = tensor("tile", x)
    times = [operator.index(each) for each in repetitions]
    missing = len(times) - rank("tile", x)
    if missing > 0:
        x = tf.reshape(x, [1] * missing + sizes(x))
    times = [1] * -missing + times
    if x.dtype == tf.uint16:  # TensorFlow cannot tile it
        return tf.bitcast(tf.tile(tf.bitcast(x, tf.int16), times), tf.uint16)
    return tf.tile(x, times)
