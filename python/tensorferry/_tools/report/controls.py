"""The legend of the plots, and the controls that filter them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorferry._tools.report.groups import Conversion, Group, framework
from tensorferry._tools.report.markup import Html, element, join
from tensorferry._tools.report.series_style import marker


@dataclass(frozen=True)
class Facet:
    """A property by which groups can be filtered, and its values."""

    name: str
    title: str
    of: Callable[[Conversion], str]
    values: list[str]


# View boxes of a legend entry: the line with the marker, or the marker only.
LINE_VIEW, MARKER_VIEW = "0 0 36 18", "10 0 16 18"
FACETS: tuple[tuple[str, str, Callable[[Conversion], str]], ...] = (
    ("from", "From", lambda conversion: framework(conversion.source)),
    ("to", "To", lambda conversion: framework(conversion.target)),
    ("on", "Device", lambda conversion: conversion.devices),
    ("type", "Type", lambda conversion: conversion.dtype),
    ("layout", "Layout", lambda conversion: conversion.layout),
)


def legend() -> Html:
    """The legend of the plots, and how to use them."""
    line = {"x1": "1", "x2": "35", "y1": "9", "y2": "9"}
    ours = element("line", **line, class_="stroke ours")
    limit = element("g", element("line", **line), class_="limit")
    whisker = element("line", x1="18", x2="18", y1="1", y2="17", class_="whisker")
    entries = (
        (join(ours, marker("shares", 0, 1.3)), LINE_VIEW, "ferry.to"),
        (marker("shares", 1), MARKER_VIEW, "shares memory"),
        (marker("copies", 1), MARKER_VIEW, "copies"),
        (join(whisker, marker("shares", 1)), MARKER_VIEW, "interquartile range"),
        (limit, LINE_VIEW, "machine limit"),
    )
    drawn = (
        element(
            "li",
            element(
                "svg",
                drawing,
                class_="glyph s0",
                width=view.split()[2],
                height="18",
                viewBox=view,
                aria_hidden="true",
            ),
            element("span", text),
        )
        for drawing, view, text in entries
    )
    return join(
        element("ul", *drawn, class_="signs"),
        element(
            "p",
            "A share moves no byte: it has a time and no bandwidth. "
            "Point at a size to see its values in the table; select a method there to follow it.",
            class_="notes",
        ),
    )


def controls(facets: Sequence[Facet]) -> Html:
    """The filters; the method `dialog` keeps the Enter key from submitting the form."""
    show = _choice("show", "Show", ["both", "time", "bandwidth"], "")
    filters = [_choice(facet.name, facet.title, facet.values, "all") for facet in facets]
    reset = element("button", "Show everything", type="reset") if filters else ""
    return element(
        "form", show, *filters, reset, class_="controls", method="dialog", autocomplete="off"
    )


def _choice(name: str, title: str, values: Sequence[str], all_label: str) -> Html:
    """A row of radio buttons, of which the first is selected."""
    options = [(f"{name}-{number}", value) for number, value in enumerate(values)]
    if all_label:
        options.insert(0, (f"{name}-all", all_label))
    buttons = (
        element(
            "label",
            element("input", type="radio", name=name, id=key, checked=number == 0),
            element("span", value),
        )
        for number, (key, value) in enumerate(options)
    )
    return element("fieldset", element("legend", title), element("div", *buttons, class_="choices"))


def facets(groups: Sequence[Group]) -> list[Facet]:
    """The properties in which the groups differ."""
    distinct = (
        Facet(name, title, of, list(dict.fromkeys(of(group.conversion) for group in groups)))
        for name, title, of in FACETS
    )
    return [facet for facet in distinct if len(facet.values) > 1]


def classes(group: Group, facets: Sequence[Facet]) -> str:
    """The CSS classes by which a filter finds a group."""
    own = (f"{facet.name}-{facet.values.index(facet.of(group.conversion))}" for facet in facets)
    return " ".join(("item", *own))
