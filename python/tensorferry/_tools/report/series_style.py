"""Colour, marker shape and dashes of a method's line; any two of them identify it.

The colours are distinguishable with the common kinds of colour blindness, and have enough contrast
to the page, light or dark; tests check both. The numbers of colours, shapes and dashes differ, so
that many methods have distinct combinations.
"""

import math

from tensorferry._tools.report.markup import Html, element

BACKGROUNDS = {"light": "#fcfcfa", "dark": "#14171a"}
COLOURS = {
    "light": (
        *("#0a5fb4", "#dd5a0c", "#0b8f63", "#7a1f60"),
        *("#5b4512", "#7b8693", "#9047f0", "#0a1a20"),
    ),
    "dark": (
        *("#6cb6ff", "#e0763d", "#43e0a2", "#d8338a"),
        *("#f4ca6a", "#a9b3c0", "#9a62f5", "#e4f7fb"),
    ),
}
DASHES = (None, "7 3", "2 2.5", "11 3 2 3", "4.5 2.5", "14 4", "8 2.5 2 2.5 2 2.5")


def _polygon(corners: int, radius: float, turn: float = 0.0) -> str:
    return _path([(radius, turn + index / corners) for index in range(corners)])


def _star(points: int, outer: float, inner: float) -> str:
    radii = (outer, inner)
    return _path([(radii[index % 2], index / (2 * points)) for index in range(2 * points)])


def _cross(arm: float, half: float, turn: float = 0.0) -> str:
    corners = [
        *((half, -arm), (half, -half), (arm, -half), (arm, half), (half, half), (half, arm)),
        *((-half, arm), (-half, half), (-arm, half), (-arm, -half), (-half, -half), (-half, -arm)),
    ]
    return _path(
        [(math.hypot(x, y), math.atan2(x, -y) / math.tau + turn) for x, y in corners],
    )


def _path(corners: list[tuple[float, float]]) -> str:
    """A closed path through corners in polar coordinates: radius, and turns from the top."""
    points = (
        (radius * math.sin(math.tau * turn), -radius * math.cos(math.tau * turn))
        for radius, turn in corners
    )
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points) + "Z"


# All shapes are closed, so that each can be filled (shares) or hollow (copies).
SHAPES = (
    "M-4.4 0A4.4 4.4 0 1 1 4.4 0A4.4 4.4 0 1 1-4.4 0Z",
    _polygon(4, 5.6, 1 / 8),
    _polygon(3, 5.8),
    _polygon(4, 5.6),
    _polygon(3, 5.8, 1 / 2),
    _cross(5.2, 1.9),
    _star(5, 6.3, 2.7),
    _polygon(6, 5.0, 1 / 12),
    _cross(5.2, 1.9, 1 / 8),
    _polygon(3, 5.8, 1 / 4),
    _polygon(5, 5.2),
    _polygon(3, 5.8, 3 / 4),
)


def colour_class(number: int) -> str:
    """The CSS class of a method's colour."""
    return f"s{number % len(COLOURS['light'])}"


def shape(number: int) -> str:
    """The outline of a method's markers, around the origin."""
    return SHAPES[number % len(SHAPES)]


def dashes(number: int) -> str | None:
    """The dashes of a method's line."""
    return DASHES[number % len(DASHES)]


def marker(kind: str, number: int, size: float = 1.0) -> Html:
    """A marker in the middle of a legend entry."""
    return element(
        "g",
        element("path", d=shape(number), class_="outline"),
        element("circle", r="1.4", class_="dot") if kind == "unknown" else "",
        transform=f"translate(18 9) scale({size})",
        class_=f"sign {kind}",
    )


def glyph(number: int, memory: str, *, ours: bool) -> Html:
    """A piece of a method's line with a marker, for tables."""
    kind = "shares" if memory.startswith("shares") else memory
    return element(
        "svg",
        element(
            "g",
            element("line", x1="1", x2="35", y1="9", y2="9", stroke_dasharray=dashes(number)),
            class_="stroke" + (" ours" if ours else ""),
        ),
        marker(kind, number, 1.3 if ours else 1.0),
        class_=f"glyph {colour_class(number)}",
        width="36",
        height="18",
        aria_hidden="true",
    )
