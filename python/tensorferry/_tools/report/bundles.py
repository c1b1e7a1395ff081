"""Groups taken together where there are very many, so that the page keeps an order and a length."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorferry._tools.report.groups import Comparison, Group, Way

# So many groups, one below the other, can still be looked through.
MANY = 48


@dataclass(frozen=True)
class Bundle:
    """Groups with the same ends: one group as a rule, and all of a pair where there are many."""

    groups: list[Group]
    details: tuple[str, ...]

    @property
    def way(self) -> Way:
        """The way of the first of them."""
        return self.groups[0].way

    @property
    def comparisons(self) -> list[Comparison]:
        """Those of all the groups."""
        return [one for group in self.groups for one in group.comparisons]

    @property
    def link(self) -> str:
        """Where on the page the first of them is."""
        return f"#g{self.groups[0].number}"


def bundles(groups: Sequence[Group]) -> list[Bundle]:
    """Each group by itself, or all of a pair together where there are too many groups."""
    differ = telling(groups)
    alone = [Bundle([group], details(group, differ)) for group in groups]
    if len(groups) <= MANY:
        return alone
    ends: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        ends.setdefault(group.way.ends, []).append(group)
    return [
        Bundle(found, (found[0].way.place, f"{len(found)} conversions")) for found in ends.values()
    ]


def common(groups: Sequence[Group]) -> list[str]:
    """What all groups have in common: place, type and layout, if there is but one of them."""
    differ = telling(groups)
    first = groups[0].way.details if groups else ()
    return [detail for number, detail in enumerate(first) if number not in differ]


def details(group: Group, differ: Iterable[int]) -> tuple[str, ...]:
    """Those details of a group that tell it from others."""
    return tuple(group.way.details[number] for number in differ)


def telling(groups: Sequence[Group]) -> list[int]:
    """Which of place, type and layout are not the same for all groups."""
    kinds = list(zip(*(group.way.details for group in groups), strict=True))
    return [number for number, values in enumerate(kinds) if len(set(values)) > 1]
