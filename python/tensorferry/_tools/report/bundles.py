"""Bundles of groups, which keep a page with very many groups short."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorferry._tools.report.groups import Comparison, Conversion, Group

# With more groups than this, the groups of a pair are bundled.
MAX_SEPARATE_GROUPS = 48


@dataclass(frozen=True)
class Bundle:
    """One group, or all groups of a pair of frameworks and devices."""

    groups: list[Group]
    details: tuple[str, ...]

    @property
    def conversion(self) -> Conversion:
        """The conversion of the first group."""
        return self.groups[0].conversion

    @property
    def comparisons(self) -> list[Comparison]:
        """The comparisons of all groups."""
        return [one for group in self.groups for one in group.comparisons]

    @property
    def link(self) -> str:
        """The link to the first group on the page."""
        return f"#g{self.groups[0].number}"


def bundles(groups: Sequence[Group]) -> list[Bundle]:
    """Each group separately, or the groups of each pair if there are too many."""
    differ = varying_details(groups)
    separate = [Bundle([group], details(group, differ)) for group in groups]
    if len(groups) <= MAX_SEPARATE_GROUPS:
        return separate
    endpoints: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        endpoints.setdefault(group.conversion.endpoints, []).append(group)
    return [
        Bundle(found, (found[0].conversion.devices, f"{len(found)} conversions"))
        for found in endpoints.values()
    ]


def common(groups: Sequence[Group]) -> list[str]:
    """The devices, type and layout that all groups have in common."""
    differ = varying_details(groups)
    first = groups[0].conversion.details if groups else ()
    return [detail for number, detail in enumerate(first) if number not in differ]


def details(group: Group, differ: Iterable[int]) -> tuple[str, ...]:
    """The details of a group that differ between groups."""
    return tuple(group.conversion.details[number] for number in differ)


def varying_details(groups: Sequence[Group]) -> list[int]:
    """The indices of the details (devices, type, layout) that differ between groups."""
    kinds = list(zip(*(group.conversion.details for group in groups), strict=True))
    return [number for number, values in enumerate(kinds) if len(set(values)) > 1]
