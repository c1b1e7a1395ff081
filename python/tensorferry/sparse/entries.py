"""From one format to another, by way of single elements: a place on each axis, and a value.

Only what the target asks for is done. Elements keep their order where it may stay, repeats stay
where they may, and stored zeros always stay. An array that needs no work is handed on as it is, so
that it can still be shared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tensorferry._native import InvalidArgument
from tensorferry.sparse.bundle import Bundle, Rules, axis_names, dtype_of, refuse
from tensorferry.sparse.check import Structure, order_of
from tensorferry.sparse.words import count_of
from tensorferry.sparse.work import Host

Steps = list[tuple[str, str]]


@dataclass
class Part:
    """One array on its way: given as it is, or still to be made."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    array: Any = None
    make: Callable[[], Any] | None = None
    steps: Steps = field(default_factory=list)


@dataclass
class Entries:
    """Elements in an order: `order` picks them, `groups` says which fall together."""

    work: Host
    axes: list[Any]
    given: list[bool]
    values: Any
    count: int
    spread: list[Steps]
    steps: Steps = field(default_factory=list)
    value_steps: Steps = field(default_factory=list)
    order: Any = None
    groups: Any = None
    in_order: bool = False
    unique: bool = False

    def summed(self) -> Any:
        """The values, when all is done."""
        values = self.work.fetch(self.values)
        if self.order is not None:
            values = self.work.take(values, self.order)
        if self.groups is None:
            return values
        shape = (self.count, *values.shape[1:])
        made = self.work.fresh(shape, dtype_of(values), zero=True)
        self.work.add(made, (self.groups,), values)
        return made

    def value_part(self) -> Part:
        """The values as a part of the result."""
        shape = (self.count, *tuple(self.values.shape)[1:])
        if self.order is None and self.groups is None:
            return Part("values", dtype_of(self.values), shape, array=self.values)
        return Part(
            "values", dtype_of(self.values), shape, make=self.summed, steps=list(self.value_steps)
        )


def entries_of(bundle: Bundle, found: Structure, work: Host) -> Entries:
    """Takes a checked bundle apart into elements."""
    if bundle.format == "coo":
        given = [found.keep is None] * len(found.axes)
        nothing: list[Steps] = [[] for _ in found.axes]
        made = Entries(work, found.axes, given, bundle.values, found.count, nothing)
        if found.keep is not None:
            padding = ("drop", f"{count_of(found.spare, 'element')} of padding, which only JAX has")
            made.order = found.keep
            made.steps.append(padding)
            made.value_steps.append(padding)
        return made
    values = bundle.values
    if found.spare:
        values = work.fetch(values)[: found.count]
    rows = work.find(work.wide(found.indptr)[1:], work.arange(found.count))
    expand: Steps = [("expand", f"{bundle.format} keeps pointers, and no place for each element")]
    if bundle.format != "bsr":
        axes, given, spread = [rows, found.indices], [False, True], [expand, []]
        if bundle.format == "csc":
            axes, given, spread = axes[::-1], given[::-1], spread[::-1]
        return Entries(work, axes, given, values, found.count, spread)
    if bundle.dense:
        refuse(
            "blocks whose elements have dense axes stay in their format",
            "pass dense=True, or a tensor without dense axes",
        )
    assert bundle.blocksize is not None
    high, wide = bundle.blocksize
    within = work.arange(high * wide)
    row = work.wide(rows)[:, None] * high + (within // wide)[None, :]
    column = work.wide(found.indices)[:, None] * wide + (within % wide)[None, :]
    flat = work.fetch(values).reshape(-1)
    axes = [row.reshape(-1), column.reshape(-1)]
    return Entries(work, axes, [False] * 2, flat, len(flat), [expand] * 2)


def arrange(entries: Entries, format: str, rules: Rules) -> None:
    """Brings elements into the order that a format asks for, and sums what must be there once."""
    work = entries.work
    axes = entries.axes[::-1] if format == "csc" else entries.axes
    in_order, unique = order_of(axes)
    step = None
    if rules.in_order and not in_order:
        order = _sorted(work, axes)
        step = ("sort", f"the elements are not in order; {rules.why}")
    elif format in ("csr", "csc") and not order_of(axes[:1])[0]:
        order = work.argsort(axes[0])
        step = (
            "sort",
            f"the elements are not grouped by {'rows' if format == 'csr' else 'columns'}",
        )
    if step is not None:
        entries.steps.append(step)
        entries.value_steps.append(step)
        entries.axes = [work.take(axis, order) for axis in entries.axes]
        entries.given = [False] * len(axes)
        if entries.order is None:
            entries.order = order
        else:
            entries.order = entries.order[order]
        axes = entries.axes[::-1] if format == "csc" else entries.axes
        in_order, unique = order_of(axes)
    if rules.unique and not unique:
        _group(entries, rules)
        unique = True
    entries.in_order, entries.unique = in_order, unique


def _sorted(work: Host, axes: list[Any]) -> Any:
    """A stable order by all axes, the first one first."""
    order = work.argsort(axes[-1])
    for axis in axes[-2::-1]:
        order = order[work.argsort(axis[order])]
    return order


def _group(entries: Entries, rules: Rules) -> None:
    """Finds elements in order that have the same place."""
    work = entries.work
    fresh: Any = None
    for axis in entries.axes:
        differs = axis[1:] != axis[:-1]
        fresh = differs if fresh is None else fresh | differs
    ids = work.cumsum(fresh)
    groups = work.arange(entries.count)
    groups[1:] = ids
    starts = work.where(fresh) + 1
    firsts = work.arange(len(starts) + 1)
    firsts[1:] = starts
    repeats = entries.count - len(firsts)
    entries.groups, entries.count = groups, len(firsts)
    step = ("sum", f"{count_of(repeats, 'duplicate')} summed in the source's type; {rules.why}")
    entries.steps.append(step)
    entries.value_steps.append(step)
    entries.axes = [work.take(axis, firsts) for axis in entries.axes]
    entries.given = [False] * len(entries.axes)


def compressed_parts(entries: Entries, format: str, rows: int, index: str) -> list[Part]:
    """Row pointers and indices (of columns, for csc) of elements that are grouped."""
    work = entries.work
    leading, other = (1, 0) if format == "csc" else (0, 1)

    def pointers() -> Any:
        made = work.fresh((rows + 1,), index, zero=True)
        if len(entries.axes[leading]):
            counts = work.counts(work.wide(entries.axes[leading]), rows)
            made[1:] = work.cumsum(counts)
        return made

    what = "row" if leading == 0 else "column"
    count = ("count", f"{format} keeps where each {what} begins")
    indptr = Part("indptr", index, (rows + 1,), make=pointers, steps=[count])
    return [indptr, _axis_part("indices", entries, other, index)]


def coordinate_parts(entries: Entries, laid: str, index: str) -> list[Part]:
    """The coordinates of elements, laid as they are asked for."""
    work, axes = entries.work, entries.axes
    if laid == "apart":
        names = axis_names(len(axes))
        return [_axis_part(name, entries, i, index) for i, name in enumerate(names)]

    def stacked() -> Any:
        shape = (len(axes), entries.count)
        whole = work.fresh(shape if laid == "axes" else shape[::-1], index)
        for number, axis in enumerate(axes):
            if laid == "axes":
                whole[number] = axis
            else:
                whole[:, number] = axis
        return whole

    together = ("lay", f"the coordinates are to lie together, {LAID[laid]}")
    shape = (len(axes), entries.count) if laid == "axes" else (entries.count, len(axes))
    expand = next((steps for steps in entries.spread if steps), [])
    steps = [*expand, *entries.steps, together]
    return [Part("coordinates", index, shape, make=stacked, steps=steps)]


LAID = {"axes": "axis by axis", "points": "point by point", "apart": "an array for each axis"}


def _axis_part(name: str, entries: Entries, number: int, index: str) -> Part:
    axis = entries.axes[number]
    shape = (entries.count,)
    if entries.given[number]:
        return Part(name, index, shape, array=axis)
    return Part(
        name,
        index,
        shape,
        make=lambda: entries.work.pack(axis, index),
        steps=[*entries.spread[number], *entries.steps],
    )


def block_parts(
    entries: Entries, shape: tuple[int, ...], block: tuple[int, int], index: str
) -> list[Part]:
    """Elements gathered into blocks, in order: row pointers, indices and values."""
    work = entries.work
    high, wide = block
    if high < 1 or wide < 1 or shape[0] % high or shape[1] % wide:
        raise InvalidArgument(
            f"blocks of {block} do not fill the shape {shape}"
            "\nhint: pass a blocksize that divides it"
        )
    rows, columns = shape[0] // high, shape[1] // wide
    row, column = (work.wide(axis) for axis in entries.axes)
    key = (row // high) * columns + column // wide
    order = work.argsort(key)
    ordered = key[order]
    fresh = work.arange(len(key)) == 0
    fresh[1:] = ordered[1:] != ordered[:-1]
    groups = work.arange(len(key))
    groups[order] = work.cumsum(fresh) - 1
    blocks = ordered[work.where(fresh)]

    def values() -> Any:
        flat = entries.summed()
        made = work.fresh((len(blocks), high, wide), dtype_of(flat), zero=True)
        work.add(made, (groups, row % high, column % wide), flat)
        return made

    def pointers() -> Any:
        made = work.fresh((rows + 1,), index, zero=True)
        if len(blocks):
            made[1:] = work.cumsum(work.counts(blocks // columns, rows))
        return made

    gather = [("gather", f"the elements go into blocks of {block}")]
    dtype = dtype_of(entries.values)
    return [
        Part("values", dtype, (len(blocks), high, wide), make=values, steps=gather),
        Part("indptr", index, (rows + 1,), make=pointers, steps=gather),
        Part(
            "indices",
            index,
            (len(blocks),),
            make=lambda: work.pack(blocks % max(columns, 1), index),
            steps=gather,
        ),
    ]
