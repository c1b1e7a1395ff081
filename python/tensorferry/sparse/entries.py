"""From one format to another, by way of single elements: a place on each axis, and a value.

Only what the target asks for is done. Elements keep their order where it may stay, repeats stay
where they may, and stored zeros always stay. An array that needs no work is handed on as it is, so
that it can still be shared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tensorferry._native import InvalidArgumentError
from tensorferry.sparse.bundle import Bundle, Rules, axis_names, dtype_of, refuse
from tensorferry.sparse.check import Structure
from tensorferry.sparse.work import GROUPED, IN_ORDER, UNIQUE, Host, axes_of

Steps = list[tuple[str, str]]


def count_of(number: int, what: str) -> str:
    """A number of things, in words."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


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
    """Elements in an order: `order` brings them into another one, `sums` has repeats summed.

    `known` has the bits of a look, by whether the last axis comes first in it.
    """

    work: Host
    parts: tuple[Any, ...]
    laid: str
    lengths: tuple[int, ...]
    values: Any
    count: int
    given: list[bool]
    spread: list[Steps]
    known: dict[bool, int]
    steps: Steps = field(default_factory=list)
    value_steps: Steps = field(default_factory=list)
    keep: Any = None
    order: Any = None
    sums: bool = False
    bits: int = 0

    def look(self, turned: bool) -> int:
        """What the elements are like, in bits."""
        if turned not in self.known:
            found = self.work.look_coordinates(self.parts, self.laid, self.lengths, turned)
            self.known[turned] = found[4]
        return self.known[turned]

    def axis(self, number: int) -> Any:
        """The coordinates along one axis, when all is done."""
        axis = axes_of(self.parts, self.laid, len(self.lengths))[number]
        return axis if self.order is None else self.order.pick(axis, self.sums)

    def gathered(self) -> Any:
        """The values before anything is done."""
        values = self.work.fetch(self.values)
        return values if self.keep is None else self.work.take(values, self.keep)

    def summed(self) -> Any:
        """The values, when all is done."""
        values = self.gathered()
        if self.order is None:
            return values
        return self.order.sum(values) if self.sums else self.order.pick(values)

    def value_part(self) -> Part:
        """The values as a part of the result."""
        shape = (self.count, *tuple(self.values.shape)[1:])
        if self.order is None and self.keep is None:
            return Part("values", dtype_of(self.values), shape, array=self.values)
        return Part(
            "values", dtype_of(self.values), shape, make=self.summed, steps=list(self.value_steps)
        )


def entries_of(bundle: Bundle, found: Structure, work: Host) -> Entries:
    """Takes a checked bundle apart into elements."""
    lengths = bundle.sparse_shape
    if bundle.format == "coo":
        made = Entries(
            work,
            found.parts,
            found.laid,
            lengths,
            bundle.values,
            found.count,
            [found.keep is None] * len(lengths),
            [[] for _ in lengths],
            {False: found.bits},
        )
        if found.keep is not None:
            padding = ("drop", f"{count_of(found.spare, 'element')} of padding, which only JAX has")
            made.keep = found.keep
            made.steps.append(padding)
            made.value_steps.append(padding)
        return made
    values = bundle.values
    if found.spare:
        values = work.fetch(values)[: found.count]
    rows = work.expand(found.indptr, found.count)
    expand: Steps = [("expand", f"{bundle.format} keeps pointers, and no place for each element")]
    if bundle.format != "bsr":
        turned = bundle.format == "csc"
        axes, given, spread = (rows, found.indices), [False, True], [expand, []]
        if turned:
            axes, given, spread = axes[::-1], given[::-1], spread[::-1]
        known = {turned: found.bits | GROUPED}
        return Entries(work, axes, "apart", lengths, values, found.count, given, spread, known)
    if bundle.dense:
        refuse(
            "blocks whose elements have dense axes stay in their format",
            "use ferry.sparse.to_dense, or pass a tensor without dense axes",
        )
    assert bundle.blocksize is not None
    high, wide = bundle.blocksize
    within = work.arange(high * wide)
    row = work.wide(rows)[:, None] * high + (within // wide)[None, :]
    column = work.wide(found.indices)[:, None] * wide + (within % wide)[None, :]
    flat = work.fetch(values).reshape(-1)
    axes = (row.reshape(-1), column.reshape(-1))
    given, spread = [False] * 2, [expand] * 2
    return Entries(work, axes, "apart", lengths, flat, len(flat), given, spread, {})


def arrange(entries: Entries, format: str, rules: Rules) -> None:
    """Brings elements into the order that a format asks for, and sums what must be there once."""
    turned = format == "csc"
    bits = entries.look(turned)
    step = None
    if rules.in_order and not bits & IN_ORDER:
        _sort(entries, range(len(entries.lengths)), turned)
        step = ("sort", f"the elements are not in order; {rules.why}")
        bits |= IN_ORDER | GROUPED
        bits |= UNIQUE if entries.order.places == entries.order.count else 0
    elif format in ("csr", "csc") and not bits & GROUPED:
        _sort(entries, [1 if turned else 0], False)
        step = not_grouped(format)
        axes = (entries.axis(0), entries.axis(1))
        bits = entries.work.look_coordinates(axes, "apart", entries.lengths, turned)[4]
    if step is not None:
        entries.steps.append(step)
        entries.value_steps.append(step)
    if rules.unique and not bits & UNIQUE:
        if entries.order is None:
            _sort(entries, range(len(entries.lengths)), turned)
        entries.sums, entries.count = True, entries.order.places
        repeats = entries.order.count - entries.count
        step = ("sum", f"{count_of(repeats, 'duplicate')} summed in the source's type; {rules.why}")
        entries.steps.append(step)
        entries.value_steps.append(step)
        bits |= UNIQUE
    entries.bits = bits


def not_grouped(format: str) -> tuple[str, str]:
    """The step that groups elements."""
    what = "rows" if format == "csr" else "columns"
    return "sort", f"the elements are not grouped by {what}"


def _sort(entries: Entries, numbers: Sequence[int], turned: bool) -> None:
    """Finds an order by some axes, the first or, if it is turned, the last one first."""
    work, parts, lengths = entries.work, entries.parts, entries.lengths
    numbers = numbers[::-1] if turned else numbers
    if list(numbers) == list(range(len(lengths))):
        entries.order = work.order(parts, entries.laid, lengths)
    else:
        axes = axes_of(parts, entries.laid, len(lengths))
        picked, along = [axes[i] for i in numbers], [lengths[i] for i in numbers]
        entries.order = work.order(picked, "apart", along)
    entries.given = [False] * len(lengths)


class Turned:
    """Elements that are grouped by another axis at once: pointers, indices and values."""

    def __init__(self, run: Callable[[], tuple[Any, Any, Any]], known: int | None) -> None:
        self._run, self._known = run, known

    @cached_property
    def made(self) -> tuple[Any, Any, Any]:
        """What came out."""
        return self._run()

    def bits(self, work: Host, rows: int, columns: int) -> int:
        """What the result is like; looked up where it does not follow from the source."""
        if self._known is None:
            indptr, indices, _ = self.made
            self._known = work.look_compressed(indptr, indices, rows, columns)[3]
        return self._known


def turned_of(
    bundle: Bundle, found: Structure, work: Host, format: str, index: str
) -> tuple[Turned, Steps] | None:
    """Groups elements by rows (csr) or columns (csc), if they are not and the worker can."""
    leading = 1 if format == "csc" else 0
    length = bundle.sparse_shape[leading]
    if bundle.format == "coo":
        bits = found.bits
        if leading:
            bits = work.look_coordinates(found.parts, found.laid, bundle.sparse_shape, True)[4]
        if bits & GROUPED or found.keep is not None or len(bundle.sparse_shape) != 2:
            return None
        axes = axes_of(found.parts, found.laid, 2)
        groups, others, values = axes[leading], axes[1 - leading], bundle.values
        made = Turned(
            lambda: work.turn_coordinates(groups, others, values, length, index),
            None,
        )
        return made, [not_grouped(format)]
    if {bundle.format, format} != {"csr", "csc"}:
        return None
    # Rows come one after the other, so that they are in order within each column.
    known = (found.bits | IN_ORDER) if found.in_order else None
    indptr, indices, values = found.indptr, found.indices, bundle.values
    made = Turned(
        lambda: work.turn_compressed(indptr, indices, values, length, index),
        known,
    )
    expand = ("expand", f"{bundle.format} keeps pointers, and no place for each element")
    return made, [expand, not_grouped(format)]


def turned_parts(
    turned: Turned, steps: Steps, found: Structure, bundle: Bundle, format: str, index: str
) -> list[Part]:
    """The parts of what was grouped."""
    rows = bundle.sparse_shape[1 if format == "csc" else 0]
    shape = (found.count, *tuple(bundle.values.shape)[1:])
    count = ("count", f"{format} keeps where each {'row' if format == 'csr' else 'column'} begins")
    return [
        Part(
            "values", dtype_of(bundle.values), shape, make=lambda: turned.made[2], steps=steps[-1:]
        ),
        Part("indptr", index, (rows + 1,), make=lambda: turned.made[0], steps=[count]),
        Part("indices", index, (found.count,), make=lambda: turned.made[1], steps=list(steps)),
    ]


def compressed_parts(entries: Entries, format: str, rows: int, index: str) -> list[Part]:
    """Row pointers and indices (of columns, for csc) of elements that are grouped."""
    leading, other = (1, 0) if format == "csc" else (0, 1)
    what = "row" if leading == 0 else "column"
    count = ("count", f"{format} keeps where each {what} begins")
    indptr = Part(
        "indptr",
        index,
        (rows + 1,),
        make=lambda: entries.work.pointers(entries.axis(leading), rows, index),
        steps=[count],
    )
    return [indptr, _axis_part("indices", entries, other, index)]


LAID = {"axes": "axis by axis", "points": "point by point", "apart": "an array for each axis"}


def coordinate_parts(entries: Entries, laid: str, index: str) -> list[Part]:
    """The coordinates of elements, laid as they are asked for."""
    many = len(entries.lengths)
    if laid == "apart":
        return [_axis_part(name, entries, i, index) for i, name in enumerate(axis_names(many))]

    def together() -> Any:
        if entries.order is None:
            return entries.work.lay(entries.parts, entries.laid, many, laid, index)
        axes = [entries.axis(number) for number in range(many)]
        return entries.work.lay(axes, "apart", many, laid, index)

    lay = ("lay", f"the coordinates are to lie together, {LAID[laid]}")
    shape = (many, entries.count) if laid == "axes" else (entries.count, many)
    expand = next((steps for steps in entries.spread if steps), [])
    return [Part("coordinates", index, shape, make=together, steps=[*expand, *entries.steps, lay])]


def _axis_part(name: str, entries: Entries, number: int, index: str) -> Part:
    shape = (entries.count,)
    if entries.given[number]:
        return Part(name, index, shape, array=entries.axis(number))
    steps = [*entries.spread[number], *entries.steps]
    return Part(name, index, shape, make=lambda: entries.axis(number), steps=steps)


def block_parts(
    entries: Entries, shape: tuple[int, ...], block: tuple[int, int], index: str
) -> list[Part]:
    """Elements gathered into blocks, in order: row pointers, indices and values."""
    work = entries.work
    high, wide = block
    if high < 1 or wide < 1 or shape[0] % high or shape[1] % wide:
        raise InvalidArgumentError(
            f"blocks of {block} do not fill the shape {shape}"
            "\nhint: pass a blocksize that divides it"
        )
    rows, columns = shape[0] // high, shape[1] // wide
    row, column = (work.wide(entries.axis(number)) for number in range(2))
    places = (row // high, column // wide)
    order = work.order(places, "apart", (rows, columns))
    numbers = order.places
    block_rows, block_columns = (order.pick(axis, True) for axis in places)

    def values() -> Any:
        flat = entries.gathered()
        made = work.fresh((numbers, high, wide), dtype_of(flat), zero=True)
        # In the order of the blocks, in which each of them has its elements side by side.
        within = order.pick(row % high), order.pick(column % wide)
        work.add(made, (order.groups(), *within), order.pick(flat))
        return made

    gather = [("gather", f"the elements go into blocks of {block}")]
    dtype = dtype_of(entries.values)
    return [
        Part("values", dtype, (numbers, high, wide), make=values, steps=gather),
        Part(
            "indptr",
            index,
            (rows + 1,),
            make=lambda: work.pointers(block_rows, rows, index),
            steps=gather,
        ),
        Part("indices", index, (numbers,), make=lambda: block_columns, steps=gather),
    ]
