"""Sorting of sparse elements by their coordinates on a GPU, and the order of elements."""

from typing import Any

from tensorferry.sparse.gpu_functions import ArrayFunctions

#: Whether elements are sorted by all axes; whether they are and coordinates are unique; whether
#: they are sorted by the first axis.
ElementOrder = tuple[bool, bool, bool]


class SortedElements:
    """A stable lexicographic order of elements by all axes."""

    def __init__(self, functions: ArrayFunctions, axes: list[Any]) -> None:
        self._functions = functions
        order = functions.argsort(axes[-1])
        for axis in axes[-2::-1]:
            order = order[functions.argsort(axis[order])]
        #: The indices of the elements, in sorted order.
        self.order = order
        starts_group: Any = None
        for axis in axes:
            ordered = axis[order]
            differs = ordered[1:] != ordered[:-1]
            starts_group = differs if starts_group is None else starts_group | differs
        #: The group of each element, in sorted order; a group has the same coordinates.
        self.groups = functions.arange(len(order))
        self.groups[1:] = functions.cumsum(starts_group)
        starts = functions.where(starts_group) + 1
        #: The index in sorted order at which each group starts.
        self.starts = functions.arange(min(len(order), len(starts) + 1))
        self.starts[1:] = starts

    def pick(self, array: Any, firsts: bool = False) -> Any:
        """The elements of an array in sorted order, or the first of each group."""
        return self._functions.take(array, self.order[self.starts] if firsts else self.order)

    def sum(self, array: Any) -> Any:
        """The sum of the values of each group, in the array's type."""
        # Added to the first value, so that a single value stays unchanged, minus zero included.
        made, groups = self.pick(array, True), self.groups
        repeated = self._functions.where(groups[1:] == groups[:-1]) + 1
        self._functions.add(made, (groups[repeated],), self.pick(array)[repeated])
        return made


def order_of(axes: list[Any]) -> ElementOrder:
    """The lexicographic order of elements."""
    if len(axes[0]) < 2:
        return True, True, True
    less: Any = None
    equal: Any = None
    grouped = True
    for axis in axes:
        before, after = axis[:-1], axis[1:]
        below, same = before < after, before == after
        if less is None:
            grouped = bool((below | same).all())
        less = below if less is None else less | (equal & below)
        equal = same if equal is None else equal & same
    if not bool((less | equal).all()):
        return False, False, grouped
    return True, not bool(equal.any()), True
