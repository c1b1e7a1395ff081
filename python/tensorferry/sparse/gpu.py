"""Operations on the index and value arrays of sparse tensors on a GPU, by PyTorch or CuPy.

The native module plans them, as it does for the host, and calls the methods of `Elements`.
"""

from typing import Any

from tensorferry.sparse.gpu_functions import FUNCTIONS
from tensorferry.sparse.gpu_sorting import ElementOrder, SortedElements, order_of


class Elements:
    """The elements of one sparse tensor on a GPU."""

    def __init__(
        self,
        framework: str,
        device: str,
        format: str,
        layout: str,
        lengths: tuple[int, ...],
        blocksize: tuple[int, int] | None,
        values: Any,
        arrays: tuple[Any, ...],
    ) -> None:
        self.functions = FUNCTIONS[framework](device)
        self.format, self.layout, self.lengths = format, layout, lengths
        self.blocksize, self.values, self.arrays = blocksize, values, arrays
        self.fetched = [self._index(array) for array in arrays]
        self.stored = self._stored()
        self.count = self.stored
        self._axes: list[Any] | None = None
        self._kept: Any = None
        self._sorted: dict[bool, SortedElements] = {}
        self._grouped: dict[bool, dict[str, Any]] = {}
        self._blocks: dict[str, Any] | None = None

    def _index(self, array: Any) -> Any:
        """An index array as int32 or int64: PyTorch does not compare all unsigned types."""
        array = self.functions.fetch(array)
        is_index = str(array.dtype).removeprefix("torch.") in ("int32", "int64")
        return array if is_index else self.functions.widen(array)

    def _stored(self) -> int:
        if self.format != "coo":
            return int(self.fetched[1].shape[-1])
        if not self.fetched:
            return 0
        return int(self.fetched[0].shape[1 if self.layout == "axes" else 0])

    # Validation.

    def validate_matrix(
        self, matrix: int, rows: int, columns: int
    ) -> tuple[str, int, int, bool, bool]:
        """The error and its index, or the number of used elements and their order."""
        indptr = self.fetched[0].reshape(-1, rows + 1)[matrix]
        indices = self.fetched[1].reshape(-1, self.stored)[matrix] if self.stored else None
        first, last = int(indptr[0]), int(indptr[-1])
        if first != 0:
            return "begins", first, 0, False, False
        if bool((indptr[1:] < indptr[:-1]).any()):
            return "goes back", 0, 0, False, False
        if last > self.stored:
            return "ends", last, 0, False, False
        if indices is None or last == 0:
            return "", 0, last, True, True
        indices = indices[:last]
        least, most = int(indices.min()), int(indices.max())
        if least < 0 or most >= columns:
            return "beyond", least if least < 0 else most, last, False, False
        in_order, unique = self._order_in_rows(indptr, indices)
        return "", 0, last, in_order, unique

    def _order_in_rows(self, indptr: Any, indices: Any) -> tuple[bool, bool]:
        if len(indices) < 2:
            return True, True
        before, after = indices[:-1], indices[1:]
        rising, above = before <= after, before < after
        # The last element of a row and the first of the next row may have any order.
        ends = indptr[1:-1]
        ends = self.functions.widen(ends[(ends > 0) & (ends < len(indices))] - 1)
        rising[ends] = True
        above[ends] = True
        in_order = bool(rising.all())
        return in_order, in_order and bool(above.all())

    def coordinate_range(self) -> tuple[list[tuple[int, int]], ElementOrder]:
        """The least and the greatest coordinate along each axis, and the order."""
        axes = self.axes()
        ends = [(int(axis.min()), int(axis.max())) for axis in axes] if self.count else []
        return ends, order_of(axes)

    def drop_padding(self) -> tuple[int, ElementOrder]:
        """Removes elements outside of the shape; returns how many remain, and their order."""
        within: Any = None
        for axis, length in zip(self.axes(), self.lengths, strict=True):
            below = axis < length
            within = below if within is None else within & below
        self._kept = self.functions.where(within)
        self._axes = [self.functions.take(axis, self._kept) for axis in self.axes()]
        self.count = len(self._kept)
        return self.count, order_of(self._axes)

    def truncate(self, count: int) -> None:
        """Keeps the first `count` elements."""
        self.count = count

    # Properties for the planner.

    def axes(self) -> list[Any]:
        """The coordinates of single elements along each axis."""
        if self._axes is None:
            self._axes = self._coordinates() if self.format == "coo" else self._expanded()
        return self._axes

    def _coordinates(self) -> list[Any]:
        if self.layout == "separate":
            return list(self.fetched)
        (matrix,) = self.fetched
        axes = range(len(self.lengths))
        if self.layout == "points" and len(matrix) == 1:
            # PyTorch refuses strided indices, even for one element.
            flat = matrix.reshape(-1)
            return [flat[i : i + 1] for i in axes]
        return [matrix[i] if self.layout == "axes" else matrix[:, i] for i in axes]

    def _expanded(self) -> list[Any]:
        functions = self.functions
        indptr, indices = self.fetched[0], self.fetched[1][: self.count]
        rows = functions.count_not_above(functions.widen(indptr)[1:], functions.arange(self.count))
        if self.format != "bsr":
            return [rows, indices] if self.format == "csr" else [indices, rows]
        assert self.blocksize is not None
        high, wide = self.blocksize
        within = functions.arange(high * wide)
        down = functions.widen(rows)[:, None] * high + (within // wide)[None, :]
        right = functions.widen(indices)[:, None] * wide + (within % wide)[None, :]
        self.count *= high * wide
        return [down.reshape(-1), right.reshape(-1)]

    def order(self, by_columns: bool) -> ElementOrder:
        """The order of single elements."""
        axes = self.axes()
        return order_of(axes[::-1] if by_columns else axes)

    def distinct(self, by_columns: bool) -> int:
        """The number of different coordinates."""
        return len(self._sort(by_columns).starts)

    def order_after_grouping(self, by_columns: bool, dtype: str) -> ElementOrder:
        """The order within rows or columns after the elements have been grouped by them."""
        made = self._group(by_columns, dtype)
        in_order, unique = self._order_in_rows(made["indptr"], made["indices"])
        return in_order, unique, True

    # Arrays of the source.

    def give(self, role: str, axis: int) -> Any:
        """The array of the source for a role, or a view of it."""
        if role == "values":
            is_whole = self.format == "coo" or self.count == self.stored
            return self.values if is_whole and self._axes is None else self._given_values()
        if role in ("axis", "indices") and self.format == "coo":
            return self.axes()[axis]
        if role == "axis" or (role == "indices" and self.count < self.stored):
            return self.fetched[1][: self.count]
        return self.arrays[1 if role == "indices" else 0]

    def _given_values(self) -> Any:
        if self.format == "coo":
            return self.values
        values = self.functions.fetch(self.values)
        is_flat = self.format == "bsr" and self._axes is not None
        return (values.reshape(-1) if is_flat else values)[: self.count]

    def is_dense(self, role: str, axis: int) -> bool:
        """Whether the array of the source for a role is dense."""
        array = self.values if role == "values" else self.give(role, axis)
        # JAX and TensorFlow have dense arrays alone.
        if type(array).__module__.split(".")[0] in ("jax", "jaxlib", "tensorflow"):
            return True
        return self.functions.is_dense(self.functions.fetch(array))

    def pack(self, role: str, axis: int, dtype: str | None) -> Any:
        """A dense copy of the array of the source for a role."""
        array = self.functions.fetch(self.give(role, axis))
        return self.functions.pack(array, array.dtype if dtype is None else dtype)

    # New arrays.

    def make(
        self,
        role: str,
        axis: int,
        format: str,
        layout: str,
        dtype: str,
        is_sorted: bool,
        is_summed: bool,
    ) -> Any:
        """Makes an array of single elements, sorted and summed on request."""
        order = self._sort(format == "csc") if is_sorted else None
        if role == "values":
            values = self._element_values()
            if order is None:
                return values
            return order.sum(values) if is_summed else order.pick(values)
        axes = self.axes()
        if order is not None:
            axes = [order.pick(one, is_summed) for one in axes]
        if role == "coordinates":
            return self._matrix(axes, layout, dtype)
        if role == "indptr":
            leading = 1 if format == "csc" else 0
            return self._pointers(axes[leading], self.lengths[leading], dtype)
        return axes[axis]

    def _matrix(self, axes: list[Any], layout: str, dtype: str) -> Any:
        shape = (len(axes), len(axes[0]))
        whole = self.functions.empty(shape if layout == "axes" else shape[::-1], dtype)
        for number, axis in enumerate(axes):
            if layout == "axes":
                whole[number] = axis
            else:
                whole[:, number] = axis
        return whole

    def _pointers(self, rows: Any, length: int, dtype: str) -> Any:
        functions = self.functions
        made = functions.zeros((length + 1,), dtype)
        if len(rows):
            counts = functions.xp.bincount(functions.widen(rows), minlength=length)
            made[1:] = functions.cumsum(counts)
        return made

    def _element_values(self) -> Any:
        """The values of single elements, without padding."""
        self.axes()
        values = self.functions.fetch(self.values)
        if self._kept is not None:
            return self.functions.take(values, self._kept)
        return values if self.format == "coo" else self._given_values()

    def _sort(self, by_columns: bool) -> SortedElements:
        if by_columns not in self._sorted:
            axes = self.axes()
            self._sorted[by_columns] = SortedElements(
                self.functions, axes[::-1] if by_columns else axes
            )
        return self._sorted[by_columns]

    def _group(self, by_columns: bool, dtype: str) -> dict[str, Any]:
        if by_columns not in self._grouped:
            functions, leading = self.functions, 1 if by_columns else 0
            axes = self.axes()
            order = functions.argsort(axes[leading])
            others = functions.take(axes[1 - leading], order)
            self._grouped[by_columns] = {
                "indptr": self._pointers(axes[leading], self.lengths[leading], dtype),
                "indices": functions.pack(others, dtype),
                "values": functions.take(self._element_values(), order),
            }
        return self._grouped[by_columns]

    def make_grouped(self, role: str, by_columns: bool, dtype: str) -> Any:
        """Makes an array of elements grouped by rows, or by columns."""
        return self._group(by_columns, dtype)[role]

    def block_count(self, block: tuple[int, int]) -> int:
        """The number of blocks that have elements."""
        return len(self._group_blocks(block)["indices"])

    def make_blocks(self, role: str, block: tuple[int, int], dtype: str) -> Any:
        """Makes an array of a block format (bsr)."""
        made = self._group_blocks(block)
        if role == "indptr":
            return self._pointers(made["rows"], self.lengths[0] // block[0], dtype)
        return made[role]

    def _group_blocks(self, block: tuple[int, int]) -> dict[str, Any]:
        if self._blocks is None:
            functions = self.functions
            high, wide = block
            row, column = map(functions.widen, self.axes())
            order = SortedElements(functions, [row // high, column // wide])
            flat = self._element_values()
            made = functions.zeros((len(order.starts), high, wide), flat.dtype)
            # The first value of each element is written, so that minus zero is kept.
            positions = SortedElements(functions, [row, column])
            blocks = functions.zeros((len(row),), "int64")
            blocks[order.order] = order.groups
            firsts = positions.order[positions.starts]
            made[blocks[firsts], row[firsts] % high, column[firsts] % wide] = positions.sum(flat)
            self._blocks = {
                "values": made,
                "rows": order.pick(row // high, True),
                "indices": order.pick(column // wide, True),
            }
        return self._blocks
