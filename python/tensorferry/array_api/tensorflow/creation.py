"""Making tensors: from values and other tensors, filled, counted, and by pattern."""

from __future__ import annotations

import builtins
import importlib
import math
from collections.abc import Sequence
from typing import Any

from tensorferry._native import CopyRequiredError, to
from tensorferry.array_api.tensorflow import dtypes
from tensorferry.array_api.tensorflow.devices import beside, moved, placed
from tensorferry.array_api.tensorflow.tensors import (
    SCALARS,
    Device,
    DType,
    Scalar,
    Tensor,
    cast,
    invalid,
    is_tensor,
    rank,
    sizes,
    tensor,
    tf,
)


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Device | None = None, copy: Any = None
) -> Tensor:
    """A tensor from a Python scalar, nested lists, or a tensor of any framework.

    `ferry.to` converts tensors of other frameworks: their memory is shared if possible, and must
    then not be written while the result is in use. `copy=True` copies it.
    """
    wanted = None if dtype is None else dtypes.resolve(dtype)
    if isinstance(obj, (*SCALARS, list, tuple, range)) and not isinstance(obj, _numpy().generic):
        if copy is False:
            raise CopyRequiredError(
                "asarray makes a tensor of Python values, which is a copy\n"
                "hint: leave out copy=False"
            )
        with placed(device):
            return _of_values(obj, wanted)
    if not is_tensor(obj):
        if not tf.executing_eagerly() and hasattr(obj, "__array__"):
            return moved(_finished(tf.constant(_numpy().asarray(obj)), wanted), device)
        obj, copy = to(obj, "tensorflow", copy=copy), None
    x = tf.convert_to_tensor(obj)
    if x.dtype not in dtypes.ANY.members:
        dtypes.resolve(x.dtype, "asarray")
    if copy is False and wanted not in (None, x.dtype):
        raise CopyRequiredError(
            f"asarray was asked for {wanted.name} and given {x.dtype.name}, which is a copy\n"
            "hint: leave out copy=False"
        )
    changed = moved(_finished(x, wanted), device)
    # A tensor may share its memory with an array that can be written: only a deep copy is safe.
    return tf.raw_ops.DeepCopy(x=changed) if copy and changed is x else changed


def _numpy() -> Any:
    return importlib.import_module("numpy")


def _finished(x: Tensor, dtype: DType | None) -> Tensor:
    return x if dtype is None else cast(x, dtype)


def _of_values(obj: Any, dtype: DType | None) -> Tensor:
    if _contains_tensors(obj):
        parts = [asarray(part) for part in obj]
        common = dtypes.promote("asarray", *(part.dtype for part in parts))
        return _finished(tf.stack([cast(part, common) for part in parts]), dtype)
    numpy = _numpy()
    if dtype is not None:
        return tf.constant(numpy.asarray(obj, dtype=dtype.as_numpy_dtype))
    values = numpy.asarray(obj)
    default = {
        "b": tf.bool,
        "i": dtypes.DEFAULT_INTEGER,
        "u": tf.uint64,
        "f": dtypes.DEFAULT_FLOAT,
        "c": dtypes.DEFAULT_COMPLEX,
    }.get(values.dtype.kind)
    if default is None:
        raise invalid(
            "asarray was given values that are no numbers", "pass numbers, nested in lists"
        )
    return tf.constant(values.astype(default.as_numpy_dtype))


def _contains_tensors(obj: Any) -> builtins.bool:
    if isinstance(obj, list | tuple):
        return builtins.any(_contains_tensors(part) for part in obj)
    return is_tensor(obj)


def from_dlpack(x: Any, /, *, device: Device | None = None, copy: Any = None) -> Tensor:
    """A tensor over the memory of a tensor of any framework, as by `ferry.to`."""
    return moved(to(x, "tensorflow", copy=copy), device)


def astype(
    x: Tensor, dtype: DType, /, *, copy: builtins.bool = True, device: Device | None = None
) -> Tensor:
    """The tensor in another type; tensors are immutable, so one that has it is not copied."""
    x, wanted = tensor("astype", x), dtypes.resolve(dtype)
    if wanted == tf.bool and x.dtype not in (tf.bool, *dtypes.COMPLEXES):
        return moved(tf.not_equal(x, tf.zeros([], x.dtype)), device)
    return moved(cast(x, wanted), device)


def full(
    shape: int | Sequence[int],
    fill_value: Scalar | Tensor,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """A tensor of one value."""
    with placed(device):
        return tf.fill(_shape(shape), asarray(fill_value, dtype=dtype))


def _shape(shape: int | Sequence[int]) -> Any:
    return [shape] if isinstance(shape, int) else list(shape)


def zeros(
    shape: int | Sequence[int], *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """Zeros."""
    return full(shape, 0, dtype=dtypes.DEFAULT_FLOAT if dtype is None else dtype, device=device)


def ones(
    shape: int | Sequence[int], *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """Ones."""
    return full(shape, 1, dtype=dtypes.DEFAULT_FLOAT if dtype is None else dtype, device=device)


def empty(
    shape: int | Sequence[int], *, dtype: DType | None = None, device: Device | None = None
) -> Tensor:
    """Zeros, because TensorFlow tensors are immutable and need values."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(
    x: Tensor,
    /,
    fill_value: Scalar | Tensor,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """A tensor of one value with the shape, type and device of another tensor."""
    x = tensor("full_like", x)
    wanted = x.dtype if dtype is None else dtype
    return full(sizes(x), fill_value, dtype=wanted, device=beside(x, device))


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Zeros like another tensor."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Ones like another tensor."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """Zeros like another tensor."""
    return zeros_like(x, dtype=dtype, device=device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Evenly spaced numbers, without the end."""
    first, end = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise invalid("arange was given a step of 0", "pass another")
    whole = builtins.all(isinstance(number, int) for number in (first, end, step))
    count = max(0, -((first - end) // step) if whole else math.ceil((end - first) / step))
    default = dtypes.DEFAULT_INTEGER if whole else dtypes.DEFAULT_FLOAT
    wanted = default if dtype is None else dtypes.resolve(dtype)
    with placed(device):
        places = tf.range(count, dtype=tf.int64)
        if not whole:
            places = tf.cast(places, tf.float64)
        # The step is wrapped into the type here, where huge unsigned numbers would not fit.
        if wanted == tf.uint64:
            numbers = tf.cast(places, wanted) * (int(step) % 2**64) + int(first)
        else:
            numbers = places * step + first
        return cast(numbers, wanted)


def linspace(
    start: Scalar,
    stop: Scalar,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    endpoint: builtins.bool = True,
) -> Tensor:
    """A given number of evenly spaced numbers."""
    if num < 0:
        raise invalid(f"linspace was given num={num}", "pass a count of 0 or more")
    mixed = isinstance(start, complex) or isinstance(stop, complex)
    default = dtypes.DEFAULT_COMPLEX if mixed else dtypes.DEFAULT_FLOAT
    wanted = default if dtype is None else dtypes.resolve(dtype)
    gaps = num - 1 if endpoint else num
    work = tf.complex128 if mixed or wanted in dtypes.COMPLEX.members else tf.float64
    with placed(device):
        places = tf.cast(tf.range(num, dtype=tf.int64), work)
        numbers = places * ((stop - start) / max(gaps, 1)) + start
        if endpoint and num > 1:
            numbers = tf.concat([numbers[:-1], tf.constant([stop], work)], 0)
        if wanted in dtypes.INTEGER.members:
            numbers = tf.floor(numbers)
        return cast(numbers, wanted)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else dtypes.resolve(dtype)
    with placed(device):
        rows, columns = tf.range(n_rows), tf.range(n_rows if n_cols is None else n_cols)
        return tf.cast(tf.equal(rows[:, None] + k, columns[None, :]), wanted)


def _triangle(name: str, x: Tensor, k: int, upper: builtins.bool) -> Tensor:
    x = tensor(name, x)
    if rank(name, x) < 2:
        raise invalid(f"{name} takes a matrix or a stack of them", "give it two dimensions")
    *_, rows, columns = sizes(x)
    distance = tf.range(columns)[None, :] - tf.range(rows)[:, None]
    return tf.where(distance >= k if upper else distance <= k, x, tf.zeros_like(x))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle, zeros above."""
    return _triangle("tril", x, k, upper=False)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle, zeros below."""
    return _triangle("triu", x, k, upper=True)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates spread over a grid."""
    if indexing not in ("xy", "ij"):
        raise invalid(f"meshgrid was given indexing={indexing!r}", 'pass "xy" or "ij"')
    found = [tensor("meshgrid", x) for x in arrays]
    if builtins.any(rank("meshgrid", x) != 1 for x in found):
        raise invalid("meshgrid takes tensors of one dimension", "pass xp.reshape(x, (-1,))")
    order = list(range(len(found)))
    if indexing == "xy" and len(found) > 1:
        order[:2] = 1, 0
    shape: list[Any] = [None] * len(found)
    for place, x in zip(order, found, strict=True):
        shape[place] = sizes(x)[0]
    return tuple(
        tf.broadcast_to(
            tf.reshape(x, [-1 if at == place else 1 for at in range(len(found))]), shape
        )
        for place, x in zip(order, found, strict=True)
    )
