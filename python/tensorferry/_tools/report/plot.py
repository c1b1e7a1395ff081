"""The log-log plots, as SVG that keeps its text at one size however wide it is drawn.

Across, everything is placed in parts of the width; up and down, in pixels. So a plot fills a phone
and a wide screen alike, and no text shrinks. Labels of the axes lie outside, in the padding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tensorferry._tools.report import findings, scale
from tensorferry._tools.report.groups import Group, Limit, Row, Series
from tensorferry._tools.report.markup import Html, element, join
from tensorferry._tools.report.series_style import dashes, look, shape

HEIGHT = 270
# The width of a plot on a screen and on a phone, near enough to say which labels fit.
WIDE, NARROW = 440, 236
LABEL = 54
MARK, MARK_OURS = 1.0, 1.4
KINDS = {True: "shares", False: "copies", None: "unknown"}


@dataclass(frozen=True)
class Measure:
    """What the vertical axis shows."""

    name: str
    caption: str
    better: str
    value: Callable[[int, float], float]
    tick: Callable[[float], str]
    words: Callable[[float], str]


TIME = Measure(
    "time",
    "Time per call",
    "lower is better",
    lambda count, seconds: seconds,
    scale.duration_tick,
    scale.duration,
)
BANDWIDTH = Measure(
    "bandwidth",
    "Bandwidth",
    "higher is better",
    lambda count, seconds: count / seconds,
    scale.rate_tick,
    scale.rate,
)
MEASURES = (TIME, BANDWIDTH)


@dataclass(frozen=True)
class Frame:
    """The two axes of a plot."""

    measure: Measure
    across: scale.LogScale
    up: scale.LogScale

    def x(self, count: float) -> float:
        """Where a size is, from 0 to 1."""
        return self.across.position(count)

    def y(self, count: int, seconds: float) -> float:
        """Where a time is, in pixels from above."""
        return HEIGHT * (1 - self.up.position(self.measure.value(count, seconds)))


def plot(group: Group, measure: Measure) -> Html:
    """One plot of a group that has something to draw."""
    frame = _frame(group, measure)
    name = f"g{group.number}-{measure.name}"
    return element(
        "svg",
        element(
            "title", f"{group.way.name}: {measure.caption.lower()} by size", id=f"{name}-title"
        ),
        element("desc", findings.description(group, measure.name), id=f"{name}-desc"),
        _grid(group, frame),
        _limit(group, frame) if group.limit else "",
        *(_line(series, frame) for series in group.series),
        *(_column(group, frame, number) for number in range(len(group.sizes))),
        class_="plot",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )


def percent(part: float) -> str:
    """A part of the width."""
    return f"{100 * part:.2f}%"


def _frame(group: Group, measure: Measure) -> Frame:
    values = [
        measure.value(row.bytes, seconds)
        for row in group.drawn
        for seconds in (row.time, *row.quartiles)
    ]
    if group.limit:
        values += [measure.value(count, seconds) for count, seconds in group.limit.points]
    return Frame(measure, scale.around(group.sizes, least=16.0, room=0.07), scale.around(values))


def _grid(group: Group, frame: Frame) -> Html:
    """Lines at round values, and a label for each; sizes are labelled where there is room."""
    parts = []
    for value in scale.ticks(frame.up):
        y = f"{HEIGHT * (1 - frame.up.position(value)):.1f}"
        parts.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        label = frame.measure.tick(value)
        parts.append(element("text", label, x="-10", y=y, dy=".33em", class_="tick up"))
    places = [frame.x(count) for count in group.sizes]
    wide, narrow = scale.spaced(places, LABEL / WIDE), scale.spaced(places, LABEL / NARROW)
    for number, (count, place) in enumerate(zip(group.sizes, places, strict=True)):
        x = percent(place)
        parts.append(element("line", x1=x, x2=x, y1="0", y2=HEIGHT, class_="grid"))
        if number in wide:
            kind = "tick" if number in narrow else "tick roomy"
            label = scale.size(count)
            parts.append(element("text", label, x=x, y=HEIGHT + 20, class_=kind))
    parts.append(element("line", x1="0", x2="100%", y1=HEIGHT, y2=HEIGHT, class_="base"))
    return element("g", *parts, class_="axes")


def _line(series: Series, frame: Frame) -> Html:
    """The line of a method, in pieces from mark to mark: only these can be parts of a width."""
    pieces = [
        element(
            "line",
            x1=percent(frame.x(first.bytes)),
            y1=f"{frame.y(first.bytes, first.time):.1f}",
            x2=percent(frame.x(second.bytes)),
            y2=f"{frame.y(second.bytes, second.time):.1f}",
        )
        for first, second in pairwise(series.rows)
    ]
    return element(
        "g",
        *pieces,
        class_=f"stroke {look(series.number)} m{series.number}" + (" ours" if series.ours else ""),
        stroke_dasharray=dashes(series.number),
    )


def _column(group: Group, frame: Frame, number: int) -> Html:
    """All the marks of one size, on a strip that can be pointed at."""
    sizes = group.sizes
    places = [frame.x(count) for count in sizes]
    here = places[number]
    left = (places[number - 1] + here) / 2 if number else 0.0
    right = (here + places[number + 1]) / 2 if number + 1 < len(sizes) else 1.0
    marks = [
        _mark(series, row, frame)
        for series in group.series
        for row in series.rows
        if row.bytes == sizes[number]
    ]
    x = percent(here)
    return element(
        "g",
        element("title", findings.column(group, frame.measure.name, sizes[number])),
        element(
            "rect", x=percent(left), width=percent(right - left), y="0", height=HEIGHT, class_="hit"
        ),
        element("line", x1=x, x2=x, y1="0", y2=HEIGHT, class_="guide"),
        *marks,
        class_=f"column c{number}",
    )


def _mark(series: Series, row: Row, frame: Frame) -> Html:
    """The median, and a whisker over the middle half of the rounds."""
    x, y = percent(frame.x(row.bytes)), frame.y(row.bytes, row.time)
    low, high = (frame.y(row.bytes, seconds) for seconds in row.quartiles)
    kind = KINDS[row.shares]
    emphasis = " ours" if row.ours else ""
    outline = element(
        "path",
        d=shape(series.number),
        class_="outline",
        transform=f"scale({MARK_OURS if row.ours else MARK})",
    )
    sign = element(
        "svg",
        outline,
        element("circle", r="1.4", class_="dot") if kind == "unknown" else "",
        x=x,
        y=f"{y:.1f}",
        class_=f"sign {kind}{emphasis}",
    )
    whisker = element("line", x1=x, x2=x, y1=f"{low:.1f}", y2=f"{high:.1f}", class_="whisker")
    return element(
        "g", whisker, sign, class_=f"mark {look(series.number)} m{series.number}{emphasis}"
    )


def _limit(group: Group, frame: Frame) -> Html:
    """What the machine itself needs: a line without marks, with its name on it."""
    limit = group.limit
    assert limit is not None
    spots = [(frame.x(count), frame.y(count, seconds)) for count, seconds in limit.points]
    if len(spots) == 1:
        (x, y) = spots[0]
        spots = [(max(0.0, x - 0.25), y), (min(1.0, x + 0.25), y)]
    pieces = [
        element("line", x1=percent(x1), y1=f"{y1:.1f}", x2=percent(x2), y2=f"{y2:.1f}")
        for (x1, y1), (x2, y2) in pairwise(spots)
    ]
    x, aside, y = _free_spot(group, frame, spots, limit)
    label = element(
        "text", limit.name, x=percent(x), dx=f"{aside:.1f}", y=f"{y:.1f}", class_="name"
    )
    return element("g", *pieces, label, class_="limit")


def _free_spot(
    group: Group, frame: Frame, spots: list[tuple[float, float]], limit: Limit
) -> tuple[float, float, float]:
    """Where beside its line the name of a limit is furthest from all other lines.

    The part of the width, the pixels from there to the middle of the name, and those from above.
    """
    half = 3.2 * len(limit.name)
    own = _along(spots)
    others = [
        point
        for series in group.series
        for point in _along(
            [(frame.x(row.bytes), frame.y(row.bytes, row.time)) for row in series.rows]
        )
    ]

    def distance(spot: tuple[float, float, float], points: list[tuple[float, float]]) -> float:
        """From the box of the name to the nearest of the points, in pixels of a narrow plot."""
        middle, height = spot[0] * NARROW + spot[1], spot[2] - 4
        return min(
            math.hypot(max(abs(middle - x * NARROW) - half, 0.0), max(abs(height - y) - 5, 0.0))
            for x, y in points
        )

    candidates = [
        (x, aside * (half + 8), y + down)
        for x, y in own
        for aside, down in ((0, -9), (0, 18), (-1, -4), (1, 12), (-1, 12), (1, -4))
    ]
    fitting = [
        spot
        for spot in candidates
        if half <= spot[0] * NARROW + spot[1] <= NARROW - half
        and 12 <= spot[2] <= HEIGHT - 6
        and distance(spot, own) >= 4
    ]
    return max(fitting or candidates, key=lambda spot: min(distance(spot, others), 40.0))


def _along(spots: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points close together on the pieces of a line, however many these are."""
    parts = max(1, 40 // len(spots))
    between = [
        (x1 + part / parts * (x2 - x1), y1 + part / parts * (y2 - y1))
        for (x1, y1), (x2, y2) in pairwise(spots)
        for part in range(parts)
    ]
    return [*between, spots[-1]]


def plots(group: Group) -> Html:
    """Both plots of a group, each a figure with its caption."""
    return join(
        *(
            element(
                "figure",
                element(
                    "figcaption",
                    element("b", measure.caption),
                    element("span", " by size, " + measure.better),
                ),
                plot(group, measure),
                class_=measure.name,
            )
            for measure in MEASURES
        )
    )
