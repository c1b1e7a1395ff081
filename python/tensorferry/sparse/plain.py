"""The common trips and nothing else, by the shortest way.

No wishes, arrays on the host, and no blocks, batches or dense axes: then there is little to decide.
A way gives None for anything else, also for what is wrong, and `route.py` sees to it. Every index
is looked through here as there.
"""

import math
from collections.abc import Callable
from typing import Any

from tensorferry._native import (
    _sparse_dense_compressed,
    _sparse_expand,
    _sparse_lay,
    _sparse_look_compressed,
    _sparse_look_coordinates,
    _sparse_pointers,
    _sparse_turn_compressed,
    _sparse_turn_coordinates,
    _SparseOrder,
    to,
)
from tensorferry.framework_register import load, tensor_framework
from tensorferry.sparse import frameworks
from tensorferry.sparse.bundle import NEAREST
from tensorferry.sparse.dense import PAGE, of_coordinates
from tensorferry.sparse.work import (
    DENSE,
    GROUPED,
    IN_ORDER,
    INT32,
    INT64,
    UNIQUE,
    axes_of,
    numpy_dtype,
)

# A sparse tensor to what it becomes, or None.
Way = Callable[[Any], Any]
# Of a type, a framework and a format, which may be `AS_DENSE`.
WAYS: dict[tuple[type, Any, Any], Way] = {}
AS_DENSE = object()
# The first number that is none of int32.
NARROW = 2**31
TYPES = INT32 | INT64


def carry(x: Any, framework: Any, format: Any) -> Any:
    """Carries a sparse tensor, if there is a plain way; None otherwise."""
    kind = type(x)
    try:
        way = WAYS.get((kind, framework, format))
    except TypeError:  # not a framework at all
        return None
    if way is None:
        way = WAYS[kind, framework, format] = _way(kind, framework, format)
    return way(x)


def dense(x: Any, framework: Any) -> Any:
    """Makes the dense tensor, if there is a plain way; None otherwise."""
    return carry(x, framework, AS_DENSE)


def _nothing(x: Any) -> None:
    return None


def _way(kind: type, framework: Any, format: Any) -> Way:
    """Finds the way for tensors of a type."""
    source = frameworks.exact_owner(kind)
    opens: dict[str, tuple[str, Way]] = {}
    if source is not None:
        opens = frameworks.module_of(source).OPENS
    matrix = kind.__name__.endswith("_matrix")
    if source != "torch":
        if kind.__name__ not in opens:
            return _nothing
        form, opened = opens[kind.__name__]
        return _between(source, form, opened, framework, format, matrix)
    torch = load("torch")
    by_layout: dict[Any, Way] = {
        getattr(torch, name): _between(source, form, opened, framework, format, False)
        for name, (form, opened) in opens.items()
    }

    def way(x: Any) -> Any:
        found = by_layout.get(x.layout)
        return None if found is None else found(x)

    return way


def _between(
    source: str | None, form: str, opened: Way, framework: Any, format: Any, matrix: bool
) -> Way:
    if format is AS_DENSE:
        return _dense(form, opened, framework)
    name = frameworks.named(framework)
    if name is None or name == "cupy":
        return _nothing
    target = frameworks.module_of(name)
    offered = target.formats()
    wanted = format or next(found for found in NEAREST[form] if found in offered)
    if wanted not in offered or wanted not in target.WRITES or (name == source and wanted == form):
        return _nothing
    write = target.WRITES[f"{wanted}_matrix" if matrix and name == "scipy" else wanted]
    if form == "coo":
        if wanted == "coo":
            return _from_coordinates(opened, _laid(target, write))
        return _from_coordinates(opened, _grouped(target, wanted, write), wanted == "csc")
    if wanted == "coo":
        return _from_compressed(form, opened, _expanded(form, target, write))
    if wanted == form:
        return _from_compressed(form, opened, _alike(target, form, write))
    return _from_compressed(form, opened, _turned(target, wanted, write))


def _from_compressed(form: str, opened: Way, make: Callable[..., Any]) -> Way:
    """Opens a compressed tensor, looks it through and hands its parts on."""
    turned = form == "csc"

    def way(x: Any) -> Any:
        parts = opened(x)
        if parts is None:
            return None
        values, indptr, indices, shape = parts
        rows, columns = shape
        if turned:
            rows, columns = columns, rows
        found = _sparse_look_compressed(values, indptr, indices, rows, columns)
        if found is None:
            return None
        fault, _, used, bits = found
        if fault or used != len(indices) or not bits & TYPES:
            return None
        return make(values, indptr, indices, shape, bits)

    return way


def _from_coordinates(opened: Way, make: Callable[..., Any], turned: bool = False) -> Way:
    """The same for coordinates; `turned` looks for an order by columns."""

    def way(x: Any) -> Any:
        opened_parts = opened(x)
        if opened_parts is None:
            return None
        values, parts, laid, shape = opened_parts
        found = _sparse_look_coordinates(values, parts, laid, shape, turned)
        if found is None:
            return None
        fault, _, _, count, bits = found
        if fault or not count or not bits & TYPES:
            return None
        return make(values, parts, laid, shape, count, bits)

    return way


def _carried(values: Any, target: Any, held: frozenset[Any] | None) -> Any:
    """The values as the target's, or None if it does not hold their type."""
    made = to(values, target.ARRAYS)
    return None if held is not None and made.dtype not in held else made


def _held(target: Any, form: str) -> frozenset[Any] | None:
    """NumPy's types of values that a format holds, where those are not all."""
    dtypes = target.formats()[form].dtypes
    return None if dtypes is None else frozenset(map(numpy_dtype, dtypes))


def _index(rules: Any, bits: int, shape: Any, count: int) -> str | None:
    """The type of indices that are made: their own if it may stay."""
    fits = count < NARROW and max(shape) < NARROW
    if bits & rules.types and (bits & INT64 or fits):
        return "int32" if bits & INT32 else "int64"
    name: str = rules.index_dtypes[0]
    return name if fits or name == "int64" else None


def _alike(target: Any, form: str, write: Callable[..., Any]) -> Callable[..., Any]:
    """A compressed format that both have."""
    arrays, held = target.ARRAYS, _held(target, form)

    def make(values: Any, indptr: Any, indices: Any, shape: Any, bits: int) -> Any:
        rules = target.formats()[form]
        if rules.needs & ~bits or not bits & rules.types:
            return None
        if bits & INT32 and max(shape) >= NARROW:
            return None
        carried = _carried(values, target, held)
        if carried is None:
            return None
        return write(carried, to(indptr, arrays), to(indices, arrays), shape, bits)

    return make


def _turned(target: Any, form: str, write: Callable[..., Any]) -> Callable[..., Any]:
    """Compressed rows as compressed columns, or the other way round."""
    arrays, held = target.ARRAYS, _held(target, form)

    def make(values: Any, indptr: Any, indices: Any, shape: Any, bits: int) -> Any:
        rules = target.formats()[form]
        index = _index(rules, bits, shape, len(indices))
        # What is in order is in order afterwards, and repeats are repeats.
        if not bits & IN_ORDER or rules.needs & ~(bits | DENSE) or index is None:
            return None
        groups = shape[1 if form == "csc" else 0]
        made = _sparse_turn_compressed(indptr, indices, values, groups, index)
        if made is None or (carried := _carried(made[2], target, held)) is None:
            return None
        return write(carried, to(made[0], arrays), to(made[1], arrays), shape, bits)

    return make


def _expanded(form: str, target: Any, write: Callable[..., Any]) -> Callable[..., Any]:
    """A compressed format as coordinates."""
    lay = _laid(target, write)

    def make(values: Any, indptr: Any, indices: Any, shape: Any, bits: int) -> Any:
        count = len(indices)
        if form == "csc":
            # In order by columns, which is hardly ever an order by rows: `route` looks.
            return None
        rows = _sparse_expand(indptr, count)
        return None if rows is None else lay(values, (rows, indices), "apart", shape, count, bits)

    return make


def _laid(target: Any, write: Callable[..., Any]) -> Callable[..., Any]:
    """Coordinates as the target has them."""
    arrays, held = target.ARRAYS, _held(target, "coo")

    def make(values: Any, parts: Any, laid: str, shape: Any, count: int, bits: int) -> Any:
        rules, many = target.formats()["coo"], len(shape)
        if not rules.fewest_axes <= many <= rules.most_axes:
            return None
        if rules.needs & ~(bits | DENSE):
            values, parts, count, bits = _sorted(values, parts, laid, shape, bits)
            if values is None:
                return None
            laid = "apart"
        index = _index(rules, bits, shape, count)
        kept = bits & INT32 if index == "int32" else bits & INT64
        if index is None:
            return None
        if laid == rules.laid and kept and (bits & DENSE or rules.strided):
            given = tuple([to(part, arrays) for part in parts])
        elif rules.laid != "apart":
            given = (to(_sparse_lay(parts, laid, many, rules.laid, index), arrays),)
        elif kept and rules.strided:
            given = tuple(axes_of((to(parts[0], arrays),), laid, many))
        else:
            return None
        if not (bits & DENSE or rules.strided) and not _is_dense(values):
            return None
        carried = _carried(values, target, held)
        return None if carried is None else write(carried, given, shape, bits)

    return make


def _sorted(values: Any, parts: Any, laid: str, shape: Any, bits: int) -> tuple[Any, Any, int, int]:
    """Elements in order, each place once; None for values that are not summed here."""
    order = _SparseOrder(parts, laid, shape)
    repeats = order.places != order.count
    made = order.sum(values) if repeats else order.pick(values)
    axes = [order.pick(axis, True) for axis in axes_of(parts, laid, len(shape))]
    told = IN_ORDER | UNIQUE | GROUPED | DENSE | bits & TYPES
    return made, axes, order.places, told


def _is_dense(values: Any) -> bool:
    """Whether values lie side by side; the bit speaks of all arrays together."""
    stride = getattr(values, "strides", None)
    if stride is not None:
        return bool(stride == (values.itemsize,))
    return bool(values.is_contiguous()) if hasattr(values, "is_contiguous") else True


def _grouped(target: Any, form: str, write: Callable[..., Any]) -> Callable[..., Any]:
    """Coordinates of two axes as a compressed format."""
    arrays, held = target.ARRAYS, _held(target, form)
    leading = 1 if form == "csc" else 0

    def make(values: Any, parts: Any, laid: str, shape: Any, count: int, bits: int) -> Any:
        rules = target.formats()[form]
        if len(shape) != 2:
            return None
        # A line of NumPy's matrix is a view; JAX and TensorFlow would copy it.
        axes = axes_of(parts if laid == "apart" else (to(parts[0], "numpy"),), laid, 2)
        if rules.needs & ~(bits | DENSE):
            first = axes[leading], axes[1 - leading]
            lengths = shape[leading], shape[1 - leading]
            values, axes, count, bits = _sorted(values, first, "apart", lengths, bits)
            if values is None:
                return None
            axes = axes[::-1] if leading else axes
        index = _index(rules, bits, shape, count)
        if index is None:
            return None
        groups, others, length = axes[leading], axes[1 - leading], shape[leading]
        if bits & GROUPED:
            kept = bits & INT32 if index == "int32" else bits & INT64
            if not kept or not (bits & DENSE or rules.strided):
                return None
            indptr = _sparse_pointers(groups, length, index)
        else:
            made = _sparse_turn_coordinates(groups, others, values, length, index)
            if made is None:
                return None
            indptr, others, values = made
            found = _sparse_look_compressed(None, indptr, others, length, shape[1 - leading])
            bits = 0 if found is None else found[3]
        carried = _carried(values, target, held)
        if carried is None:
            return None
        return write(carried, to(indptr, arrays), to(others, arrays), shape, bits)

    return make


def _dense(form: str, opened: Way, framework: Any) -> Way:
    arrays = tensor_framework(framework)
    if arrays == "cupy":
        return _nothing
    turned = form == "csc"

    def compressed(values: Any, indptr: Any, indices: Any, shape: Any, bits: int) -> Any:
        if shape[0] * shape[1] > PAGE * max(len(indices), 16):
            return None
        add = not bits & UNIQUE
        made = _sparse_dense_compressed(indptr, indices, values, shape, turned, add)
        return made if made is None or arrays == "numpy" else to(made, arrays)

    def coordinates(values: Any, parts: Any, laid: str, shape: Any, count: int, bits: int) -> Any:
        if math.prod(shape) > PAGE * max(count, 16):
            return None
        made = of_coordinates(parts, laid, len(shape), values, shape, count, bits)
        return made if made is None or arrays == "numpy" else to(made, arrays)

    if form == "coo":
        return _from_coordinates(opened, coordinates)
    return _from_compressed(form, opened, compressed)
