"""The tables after the plots: ratios, machine, versions and settings."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensorferry._tools.report import findings, scale
from tensorferry._tools.report.bundles import MAX_SEPARATE_GROUPS, details, varying_details
from tensorferry._tools.report.controls import Facet, classes
from tensorferry._tools.report.groups import Comparison, Group, framework
from tensorferry._tools.report.markup import Html, element, join, screen_reader_text
from tensorferry._tools.report.overview import pair, tags
from tensorferry._tools.report.sections import table

# Facts of the machine and their titles; all other facts are versions.
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
    "seconds": "Seconds per method",
    "device": "Device",
    "methods": "Methods",
}
VERDICT_SIGNS = {"ahead": "▲", "level": "=", "behind": "▼"}


def ratios(groups: Sequence[Group], facets: Sequence[Facet]) -> Html:
    """A row for each group, a column for each size."""
    differ = varying_details(groups)
    compared = [(group, {one.bytes: one for one in group.comparisons}) for group in groups]
    sizes = sorted({size for _, found in compared for size in found})
    rows = (
        element(
            "tr",
            element(
                "th",
                pair(group.conversion.source, group.conversion.target),
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
    caption = "Times as fast as the best native method, by size"
    head = ("Conversion", "Memory", *map(scale.size, sizes))
    whole = table(caption, head, rows, "ratios-0")
    if len(groups) > MAX_SEPARATE_GROUPS:
        whole = element("details", element("summary", f"All {len(groups)} rows"), whole)
    return element(
        "section",
        element("h2", "Ratios", id="ratios"),
        element(
            "p",
            element("b", "▲ ahead, = level, ▼ behind. "),
            findings.rule(groups),
            " If ferry.to was measured in several ways, the fastest counts.",
            class_="notes",
        ),
        whole,
        aria_labelledby="ratios",
    )


def _ratio(one: Comparison | None) -> Html:
    if one is None:
        return join(
            element("span", "\N{EN DASH}", aria_hidden="true"), screen_reader_text("not compared")
        )
    sign = element("span", VERDICT_SIGNS[one.verdict], class_="verdict", aria_hidden="true")
    return element(
        "span",
        scale.precise_ratio(one.ratio),
        " ",
        sign,
        screen_reader_text(one.verdict),
        class_=one.verdict,
    )


def machine(known: Mapping[str, Any], settings: Mapping[str, Any]) -> Html:
    """The machine, the versions and the settings."""
    description = [(key, date(value) if key == "date" else value) for key, value in known.items()]
    own = ((MACHINE[key], value) for key, value in description if key in MACHINE)
    versions = ((framework(key), value) for key, value in description if key not in MACHINE)
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


def _list(title: str, pairs: Iterable[tuple[object, object]], missing: str) -> Html:
    lines = (
        element(
            "div",
            element("dt", name),
            element("dd", missing if value is None else value, class_=value is None and "nothing"),
        )
        for name, value in pairs
    )
    return element("div", element("h3", title), element("dl", *lines))


def _settings(settings: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The settings as text."""
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
    """A date for readers; text that is not a date stays unchanged."""
    try:
        day = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return "" if text is None else str(text)
    zone = f" {day.tzname()}" if day.tzinfo else ""
    return f"{day.day} {day:%B %Y}, {day:%H:%M}{zone}"
