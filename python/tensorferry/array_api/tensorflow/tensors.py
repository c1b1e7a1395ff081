"""Helpers of all functions: TensorFlow itself, conversion of arguments, axes and shapes.

Nothing is read from a tensor's memory, so all of it works in the graph of a `tf.function` too, as
long as the number of dimensions is known there. Sizes that a graph does not know are tensors.
"""

from __future__ import annotations

import builtins
import importlib
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from tensorferry._native import InvalidArgumentError, NotATensorError, UnsupportedDTypeError
from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.dtypes import Kind

tf: Any = importlib.import_module("tensorflow")

Tensor: TypeAlias = Any
DType: TypeAlias = Any
Device: TypeAlias = str
Scalar: TypeAlias = builtins.bool | int | float | complex
Axis: TypeAlias = int | Sequence[int] | None

SCALARS = (builtins.bool, int, float, complex)


def invalid(fact: str, hint: str) -> InvalidArgumentError:
    """The error for an invalid value."""
    return InvalidArgumentError(f"{fact}\nhint: {hint}")


def refuse_object(name: str, x: object) -> NoReturn:
    """Raises the error for an argument that is not a TensorFlow tensor."""
    kind = type(x)
    raise NotATensorError(
        f"{name} takes tensors of TensorFlow, not {kind.__module__}.{kind.__qualname__}\n"
        "hint: make it one with xp.asarray(x)"
    )


def missing(extension: str, name: str) -> NoReturn:
    """Raises the error for an unknown function; Python looks up special names as well."""
    title = f"xp.{extension}.{name}" if extension else name
    if name.startswith("__"):
        raise AttributeError(f"unknown attribute {title}", name=name)
    raise AttributeError(
        f"the Array API namespace of TensorFlow has no function {title}\n"
        f"hint: dir({f'xp.{extension}' if extension else 'xp'}) lists the functions; or convert "
        "the tensor to a framework that has it, with ferry.to or @ferry.via",
        name=name,
    )


def is_tensor(x: object) -> bool:
    """Whether an object is a dense tensor or variable, eager or symbolic."""
    return isinstance(x, tf.Tensor | tf.Variable)


def tensor(name: str, x: Tensor, kind: Kind = dtypes.ANY) -> Tensor:
    """The argument as a tensor, after a check of its type."""
    if not isinstance(x, tf.Tensor):
        if not isinstance(x, tf.Variable):
            refuse_object(name, x)
        x = tf.convert_to_tensor(x)
    if x.dtype not in kind.members:
        refuse_dtype(name, x.dtype, kind)
    return x


def refuse_dtype(name: str, dtype: DType, kind: Kind) -> NoReturn:
    """Raises the error for a type that the function is not defined for."""
    raise UnsupportedDTypeError(
        f"{name} takes {kind.words} tensors, not {dtype.name}\n"
        "hint: cast it first: xp.astype(x, dtype)"
    )


def scalar(name: str, value: Scalar, dtype: DType) -> Tensor:
    """A Python scalar as a tensor of the other operand's type."""
    dtypes.check_scalar(name, value, dtype)
    return tf.constant(value, dtype)


def together(name: str, kind: Kind, *xs: Tensor | Scalar) -> list[Tensor]:
    """Tensors and Python scalars as tensors of their common type."""
    found = [None if isinstance(x, SCALARS) else tensor(name, x, kind) for x in xs]
    given = [x.dtype for x in found if x is not None]
    if not given:
        raise invalid(
            f"{name} was given Python scalars alone", "make one of them a tensor: xp.asarray(x)"
        )
    common = dtypes.promote(name, *given)
    return [
        scalar(name, value, common) if x is None else cast(x, common)
        for x, value in zip(found, xs, strict=True)
    ]


def cast(x: Tensor, dtype: DType) -> Tensor:
    """The tensor in another type; itself if it has that type.

    TensorFlow drops imaginary parts in silence.
    """
    if x.dtype in dtypes.COMPLEX.members and dtype not in dtypes.COMPLEX.members:
        raise invalid(
            f"complex values cannot be {dtype.name} without losing their imaginary parts",
            "take xp.real(x), xp.imag(x) or xp.abs(x) first",
        )
    return x if x.dtype == dtype else tf.cast(x, dtype)


def widened(x: Tensor) -> Tensor:
    """16-bit floats as float32, because sums in 16 bits lose precision or overflow."""
    return tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x


def if_any(condition: Tensor, careful: Callable[[], Tensor], usual: Callable[[], Tensor]) -> Tensor:
    """The result of the slow path if a condition holds anywhere, else of the fast path."""
    found = tf.reduce_any(condition)
    if tf.executing_eagerly():
        return careful() if found else usual()
    return tf.cond(found, careful, usual)


def where_any(
    condition: Tensor, careful: Callable[..., Tensor], usual: Tensor, *xs: Tensor
) -> Tensor:
    """The fast result, replaced by the slow function of `xs` where a condition holds."""
    if not tf.executing_eagerly():
        return if_any(condition, lambda: careful(*xs), lambda: usual)
    places = tf.where(condition)
    if places.shape[0] == 0:
        return usual
    if places.shape[0] * 8 > condition.shape.num_elements():
        return careful(*xs)
    picked = [tf.gather_nd(tf.broadcast_to(x, condition.shape), places) for x in xs]
    return tf.tensor_scatter_nd_update(usual, places, careful(*picked))


def rank(name: str, x: Tensor) -> int:
    """The number of dimensions of a tensor."""
    found = x.shape.rank
    if found is None:
        raise invalid(
            f"{name} needs to know how many dimensions its argument has",
            "give the tf.function an input_signature, or call x.set_shape first",
        )
    return int(found)


def sizes(x: Tensor) -> list[Any]:
    """The shape of a tensor: integers, and tensors for lengths unknown in a graph."""
    known: list[Any] = x.shape.as_list()
    if None in known:
        dynamic = tf.shape(x)
        return [dynamic[place] if size is None else size for place, size in enumerate(known)]
    return known


def count(parts: Sequence[Any]) -> Any:
    """The product of sizes."""
    product: Any = 1
    for part in parts:
        product = product * part
    return product


def common_shape(name: str, *xs: Tensor) -> Any:
    """The broadcast shape of tensors."""
    if builtins.all(x.shape.is_fully_defined() for x in xs):
        return broadcast_sizes(name, *(x.shape.as_list() for x in xs))
    shape = tf.shape(xs[0])
    for x in xs[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(x))
    return shape


def broadcast_sizes(name: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    """The broadcast shape of shapes."""
    length = builtins.max((len(shape) for shape in shapes), default=0)
    result = [1] * length
    for shape in shapes:
        for place, size in enumerate(shape, length - len(shape)):
            if result[place] == 1:
                result[place] = size
            elif size not in (1, result[place]):
                listed = " and ".join(str(tuple(shape)) for shape in shapes)
                raise invalid(
                    f"{name} cannot broadcast the shapes {listed} against each other",
                    "sizes must be equal or 1, counted from the last dimension",
                )
    return tuple(result)


def one_axis(name: str, axis: int, dimensions: int) -> int:
    """The axis counted from the front."""
    place = operator.index(axis)
    if not -dimensions <= place < dimensions:
        raise invalid(
            f"{name} was given axis {place} and a tensor of {dimensions} dimensions",
            f"an axis is from {-dimensions} to {dimensions - 1}"
            if dimensions
            else "a tensor without dimensions has no axis",
        )
    return place % dimensions


def all_axes(name: str, axis: Axis, dimensions: int) -> list[int]:
    """The axes counted from the front; None means all of them."""
    if axis is None:
        return list(range(dimensions))
    given = axis if isinstance(axis, Sequence) else (axis,)
    places = [one_axis(name, each, dimensions) for each in given]
    if len(set(places)) < len(places):
        raise invalid(f"{name} was given an axis twice: {tuple(given)}", "name each axis once")
    return places


def axis_last(x: Tensor, place: int, dimensions: int) -> Tensor:
    """The tensor with one axis moved to the end."""
    if place == dimensions - 1:
        return x
    order = [other for other in range(dimensions) if other != place]
    return tf.transpose(x, [*order, place])


def axis_back(x: Tensor, place: int, dimensions: int) -> Tensor:
    """The tensor with its last axis moved back."""
    if place == dimensions - 1:
        return x
    order = list(range(dimensions - 1))
    order.insert(place, dimensions - 1)
    return tf.transpose(x, order)
