"""What comes after the plots: the table of ratios, the machine, the versions and the settings."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensorferry._tools.report import scale
from tensorferry._tools.report.bundles import MANY, details, telling
from tensorferry._tools.report.controls import Facet, classes
from tensorferry._tools.report.groups import Comparison, Group, framework
from tensorferry._tools.report.markup import Html, element, join, unseen
from tensorferry._tools.report.overview import pair, tags
from tensorferry._tools.report.sections import table

# Facts of the machine and their names here; whatever else is known is a version.
MACHINE = {
    "date": "Date",
    "cpu": "Processor",
    "cores": "Cores",
    "gpu": "GPU",
    "memory GiB": "Memory, GiB",
    "kernel": "Kernel",
    "huge pages": "Huge pages",
    "load": "Load",
    "commit": "Commit",
}
SETTINGS = {
    "sizes": "Sizes",
    "dtypes": "Types",
    "layouts": "Layouts",
    "pairs": "Pairs",
    "seconds": "Seconds for each",
    "device": "Device",
    "methods": "Methods",
}
SIGNS = {"ahead": "▲", "level": "=", "behind": "▼"}


def ratios(groups: Sequence[Group], facets: Sequence[Facet]) -> Html:
    """A row for each group, a column for each size."""
    differ = telling(groups)
    compared = [(group, {one.bytes: one for one in group.comparisons}) for group in groups]
    sizes = sorted({size for _, found in compared for size in found})
    rows = (
        element(
            "tr",
            element(
                "th",
                pair(group.way.source, group.way.target),
                tags(details(group, differ)),
                scope="row",
            ),
            element("td", group.memory),
            *(element("td", _ratio(found.get(size))) for size in sizes),
            class_=classes(group, facets),
        )
        for group, found in compared
        if found
    )
    caption = "Times as fast as the best native way, by size"
    head = ("Conversion", "Memory", *map(scale.size, sizes))
    whole = table(caption, head, rows, "ratios-0")
    if len(groups) > MANY:
        whole = element("details", element("summary", f"All {len(groups)} rows"), whole)
    return element(
        "section",
        element("h2", "Ratios", id="ratios"),
        element(
            "p",
            "▲ ahead, ▼ behind, = level: the middle halves of the rounds of both overlap. "
            "Where ferry.to has several ways, the fastest counts.",
            class_="notes",
        ),
        whole,
        aria_labelledby="ratios",
    )


def _ratio(one: Comparison | None) -> Html:
    if one is None:
        return join(element("span", "\N{EN DASH}", aria_hidden="true"), unseen("not compared"))
    sign = element("span", SIGNS[one.verdict], class_="verdict", aria_hidden="true")
    return element(
        "span", scale.ratio(one.ratio), " ", sign, unseen(one.verdict), class_=one.verdict
    )


def machine(known: Mapping[str, Any], settings: Mapping[str, Any]) -> Html:
    """Where it was measured, with what, and what was asked for."""
    facts = [(key, date(value) if key == "date" else value) for key, value in known.items()]
    own = ((MACHINE[key], value) for key, value in facts if key in MACHINE)
    versions = ((framework(key), value) for key, value in facts if key not in MACHINE)
    return element(
        "section",
        element("h2", "Machine and versions", id="machine"),
        element(
            "div",
            _list("Machine", own, "none"),
            _list("Versions", versions, "not installed"),
            _list("Settings", _settings(settings), "none"),
            class_="facts",
        ),
        aria_labelledby="machine",
    )


def _list(title: str, pairs: Iterable[tuple[object, object]], nothing: str) -> Html:
    lines = (
        element(
            "div",
            element("dt", name),
            element("dd", nothing if value is None else value, class_=value is None and "nothing"),
        )
        for name, value in pairs
    )
    return element("div", element("h3", title), element("dl", *lines))


def _settings(settings: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What was asked of the benchmark, in words."""
    for key, value in settings.items():
        name = SETTINGS.get(key, key)
        if key == "sizes":
            yield name, ", ".join(map(scale.size, value))
        elif key == "pairs":
            yield name, ", ".join(" to ".join(map(framework, map(str, pair))) for pair in value)
        elif isinstance(value, list | tuple):
            yield name, ", ".join(map(str, value))
        else:
            yield name, str(value)


def date(text: object) -> str:
    """A date as people write it; whatever is no date stays as it is."""
    try:
        day = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return "" if text is None else str(text)
    zone = f" {day.tzname()}" if day.tzinfo else ""
    return f"{day.day} {day:%B %Y}, {day:%H:%M}{zone}"
