"""What comes before the plots: how to read them, and which of them to show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorferry._tools.report.groups import Group, Way, framework
from tensorferry._tools.report.markup import Html, element, join
from tensorferry._tools.report.series_style import sign


@dataclass(frozen=True)
class Facet:
    """Something that groups can be filtered by, and the values that it has."""

    name: str
    title: str
    of: Callable[[Way], str]
    values: list[str]


# Parts of a glyph: the line with the mark on it, or the mark alone.
WHOLE, MIDDLE = "0 0 36 18", "10 0 16 18"
FACETS: tuple[tuple[str, str, Callable[[Way], str]], ...] = (
    ("from", "From", lambda way: framework(way.source)),
    ("to", "To", lambda way: framework(way.target)),
    ("on", "Device", lambda way: way.place),
    ("type", "Type", lambda way: way.dtype),
    ("layout", "Layout", lambda way: way.layout),
)


def reading() -> Html:
    """How to read the plots: first what the eye needs, then what the mind does."""
    line = {"x1": "1", "x2": "35", "y1": "9", "y2": "9"}
    ours = element("line", **line, class_="stroke ours")
    limit = element("g", element("line", **line), class_="limit")
    whisker = element("line", x1="18", x2="18", y1="1", y2="17", class_="whisker")
    signs = (
        (join(ours, sign("shares", 0, 1.3)), WHOLE, "ferry.to"),
        (sign("shares", 1), MIDDLE, "shares memory"),
        (sign("copies", 1), MIDDLE, "copies"),
        (join(whisker, sign("shares", 1)), MIDDLE, "middle half of the rounds"),
        (limit, WHOLE, "limit of the machine"),
    )
    drawn = (
        element(
            "li",
            element(
                "svg",
                drawing,
                class_="glyph s0",
                width=part.split()[2],
                height="18",
                viewBox=part,
                aria_hidden="true",
            ),
            element("span", words),
        )
        for drawing, part, words in signs
    )
    return join(
        element("ul", *drawn, class_="signs"),
        element(
            "p",
            "A share moves no bytes: its bandwidth only says how soon the result can be used. "
            "Point at a size to read its values in the key; pick a method there to follow it.",
            class_="notes",
        ),
    )


def controls(facets: Sequence[Facet]) -> Html:
    """Which plots to show; `dialog` keeps the Enter key from sending the form anywhere."""
    show = _choice("show", "Show", ["both", "time", "bandwidth"], "")
    filters = [_choice(facet.name, facet.title, facet.values, "all") for facet in facets]
    reset = element("button", "Show everything", type="reset") if filters else ""
    return element(
        "form", show, *filters, reset, class_="controls", method="dialog", autocomplete="off"
    )


def _choice(name: str, title: str, values: Sequence[str], everything: str) -> Html:
    """A row of radio buttons of which the first is on."""
    options = [(f"{name}-{number}", value) for number, value in enumerate(values)]
    if everything:
        options.insert(0, (f"{name}-all", everything))
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
    """What the groups can be filtered by: whatever they differ in."""
    distinct = (
        Facet(name, title, of, list(dict.fromkeys(of(group.way) for group in groups)))
        for name, title, of in FACETS
    )
    return [facet for facet in distinct if len(facet.values) > 1]


def classes(group: Group, facets: Sequence[Facet]) -> str:
    """The classes by which a filter finds what belongs to a group."""
    own = (f"{facet.name}-{facet.values.index(facet.of(group.way))}" for facet in facets)
    return " ".join(("item", *own))
