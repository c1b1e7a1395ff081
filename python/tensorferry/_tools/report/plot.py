"""The log-log plots, as SVG whose text has the same size at every width.

Horizontal positions are percentages of the width, vertical positions are pixels. So a plot fills a
phone and a wide screen, and text does not shrink. Axis labels are outside, in the padding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tensorferry._tools.report import findings, scale
from tensorferry._tools.report.groups import Group, Limit, Row, Series
from tensorferry._tools.report.markup import Html, element, join
from tensorferry._tools.report.series_style import colour_class, dashes, shape

HEIGHT_PX = 270
# Approximate widths of a plot on a screen and on a phone, which decide which labels fit.
SCREEN_WIDTH_PX, PHONE_WIDTH_PX = 440, 236
LABEL_WIDTH_PX = 54
MARKER_SCALE, OUR_MARKER_SCALE = 1.0, 1.4
KINDS = {True: "shares", False: "copies", None: "unknown"}


@dataclass(frozen=True)
class Measure:
    """The quantity of the vertical axis."""

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


def has_value(row: Row, measure: Measure) -> bool:
    """Whether a row has a value of a measure."""
    return measure is TIME or row.moves_bytes


@dataclass(frozen=True)
class Axes:
    """The two axes of a plot."""

    measure: Measure
    across: scale.LogScale
    up: scale.LogScale

    def x(self, count: float) -> float:
        """The position of a size, from 0 to 1."""
        return self.across.position(count)

    def y(self, count: int, seconds: float) -> float:
        """The position of a time, in pixels from the top."""
        return HEIGHT_PX * (1 - self.up.position(self.measure.value(count, seconds)))


def plot(group: Group, measure: Measure) -> Html:
    """One plot of a group that has rows to draw."""
    axes = _axes(group, measure)
    name = f"g{group.number}-{measure.name}"
    return element(
        "svg",
        element(
            "title",
            f"{group.conversion.name}: {measure.caption.lower()} by size",
            id=f"{name}-title",
        ),
        element("desc", findings.description(group, measure.name), id=f"{name}-desc"),
        _grid(group, axes),
        _limit(group, axes) if group.limit else "",
        *(_line(series, axes) for series in group.series),
        *(_column(group, axes, number) for number in range(len(group.sizes))),
        class_="plot",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )


def percent(part: float) -> str:
    """A fraction as a percentage."""
    return f"{100 * part:.2f}%"


def _axes(group: Group, measure: Measure) -> Axes:
    values = [
        measure.value(row.bytes, seconds)
        for row in group.drawn
        if has_value(row, measure)
        for seconds in (row.time, *row.quartiles)
    ]
    if group.limit:
        values += [measure.value(count, seconds) for count, seconds in group.limit.points]
    return Axes(
        measure, scale.around(group.sizes, min_factor=16.0, margin=0.07), scale.around(values)
    )


def _grid(group: Group, axes: Axes) -> Html:
    """Grid lines at round values with labels; sizes are labelled where labels fit."""
    parts = []
    for value in scale.ticks(axes.up):
        y = f"{HEIGHT_PX * (1 - axes.up.position(value)):.1f}"
        parts.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        label = axes.measure.tick(value)
        parts.append(element("text", label, x="-10", y=y, dy=".33em", class_="tick up"))
    positions = [axes.x(count) for count in group.sizes]
    wide, narrow = (
        scale.spaced(positions, LABEL_WIDTH_PX / SCREEN_WIDTH_PX),
        scale.spaced(positions, LABEL_WIDTH_PX / PHONE_WIDTH_PX),
    )
    for number, (count, position) in enumerate(zip(group.sizes, positions, strict=True)):
        x = percent(position)
        parts.append(element("line", x1=x, x2=x, y1="0", y2=HEIGHT_PX, class_="grid"))
        if number in wide:
            kind = "tick" if number in narrow else "tick roomy"
            label = scale.size(count)
            parts.append(element("text", label, x=x, y=HEIGHT_PX + 20, class_=kind))
    parts.append(element("line", x1="0", x2="100%", y1=HEIGHT_PX, y2=HEIGHT_PX, class_="base"))
    return element("g", *parts, class_="axes")


def _line(series: Series, axes: Axes) -> Html:
    """The line of a method, as segments: only their ends can be percentages of the width."""
    segments = [
        element(
            "line",
            x1=percent(axes.x(first.bytes)),
            y1=f"{axes.y(first.bytes, first.time):.1f}",
            x2=percent(axes.x(second.bytes)),
            y2=f"{axes.y(second.bytes, second.time):.1f}",
        )
        for first, second in pairwise(row for row in series.rows if has_value(row, axes.measure))
    ]
    return element(
        "g",
        *segments,
        class_=f"stroke {colour_class(series.number)} m{series.number}"
        + (" ours" if series.ours else ""),
        stroke_dasharray=dashes(series.number),
    )


def _column(group: Group, axes: Axes, number: int) -> Html:
    """The markers at one size, on a strip that reacts to the pointer."""
    sizes = group.sizes
    positions = [axes.x(count) for count in sizes]
    here = positions[number]
    left = (positions[number - 1] + here) / 2 if number else 0.0
    right = (here + positions[number + 1]) / 2 if number + 1 < len(sizes) else 1.0
    markers = [
        _marker(series, row, axes)
        for series in group.series
        for row in series.rows
        if row.bytes == sizes[number] and has_value(row, axes.measure)
    ]
    x = percent(here)
    return element(
        "g",
        element("title", findings.column(group, axes.measure.name, sizes[number])),
        element(
            "rect",
            x=percent(left),
            width=percent(right - left),
            y="0",
            height=HEIGHT_PX,
            class_="hit",
        ),
        element("line", x1=x, x2=x, y1="0", y2=HEIGHT_PX, class_="guide"),
        *markers,
        class_=f"column c{number}",
    )


def _marker(series: Series, row: Row, axes: Axes) -> Html:
    """A marker at the median, and a whisker over the interquartile range."""
    x, y = percent(axes.x(row.bytes)), axes.y(row.bytes, row.time)
    low, high = (axes.y(row.bytes, seconds) for seconds in row.quartiles)
    kind = KINDS[row.shares]
    emphasis = " ours" if row.ours else ""
    outline = element(
        "path",
        d=shape(series.number),
        class_="outline",
        transform=f"scale({OUR_MARKER_SCALE if row.ours else MARKER_SCALE})",
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
        "g", whisker, sign, class_=f"mark {colour_class(series.number)} m{series.number}{emphasis}"
    )


def _limit(group: Group, axes: Axes) -> Html:
    """The limit of the machine: a line without markers, with its name."""
    limit = group.limit
    assert limit is not None
    line_points = [(axes.x(count), axes.y(count, seconds)) for count, seconds in limit.points]
    if len(line_points) == 1:
        (x, y) = line_points[0]
        line_points = [(max(0.0, x - 0.25), y), (min(1.0, x + 0.25), y)]
    segments = [
        element("line", x1=percent(x1), y1=f"{y1:.1f}", x2=percent(x2), y2=f"{y2:.1f}")
        for (x1, y1), (x2, y2) in pairwise(line_points)
    ]
    x, aside, y = _label_position(group, axes, line_points, limit)
    label = element(
        "text", limit.name, x=percent(x), dx=f"{aside:.1f}", y=f"{y:.1f}", class_="name"
    )
    return element("g", *segments, label, class_="limit")


def _label_position(
    group: Group, axes: Axes, line_points: list[tuple[float, float]], limit: Limit
) -> tuple[float, float, float]:
    """The position for a limit's name, beside its line and far from all other lines.

    Returns the fraction of the width, the offset of the name's middle in pixels, and the pixels
    from the top.
    """
    half = 3.2 * len(limit.name)
    own = _along(line_points)
    others = [
        point
        for series in group.series
        for point in _along(
            [
                (axes.x(row.bytes), axes.y(row.bytes, row.time))
                for row in series.rows
                if has_value(row, axes.measure)
            ]
        )
    ]

    def distance(candidate: tuple[float, float, float], points: list[tuple[float, float]]) -> float:
        """The distance from the name's box to the nearest point, in pixels of a narrow plot."""
        middle, height = candidate[0] * PHONE_WIDTH_PX + candidate[1], candidate[2] - 4
        return min(
            math.hypot(
                max(abs(middle - x * PHONE_WIDTH_PX) - half, 0.0), max(abs(height - y) - 5, 0.0)
            )
            for x, y in points
        )

    candidates = [
        (x, aside * (half + 8), y + down)
        for x, y in own
        for aside, down in ((0, -9), (0, 18), (-1, -4), (1, 12), (-1, 12), (1, -4))
    ]
    fitting = [
        candidate
        for candidate in candidates
        if half <= candidate[0] * PHONE_WIDTH_PX + candidate[1] <= PHONE_WIDTH_PX - half
        and 12 <= candidate[2] <= HEIGHT_PX - 6
        and distance(candidate, own) >= 4
    ]
    return max(fitting or candidates, key=lambda candidate: min(distance(candidate, others), 40.0))


def _along(line_points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Closely spaced points on the segments of a line."""
    if not line_points:
        return []
    parts = max(1, 40 // len(line_points))
    between = [
        (x1 + part / parts * (x2 - x1), y1 + part / parts * (y2 - y1))
        for (x1, y1), (x2, y2) in pairwise(line_points)
        for part in range(parts)
    ]
    return [*between, line_points[-1]]


def _which(group: Group, measure: Measure) -> str:
    """The methods that a plot shows, if it does not show all."""
    shows_all = all(has_value(row, measure) for row in group.drawn)
    return "" if shows_all else " of the methods that copy"


def plots(group: Group) -> Html:
    """The plots of a group, as figures with captions; of times only, if no method moves bytes."""
    return join(
        *(
            element(
                "figure",
                element(
                    "figcaption",
                    element("b", measure.caption),
                    element("span", f" by size{_which(group, measure)}, {measure.better}"),
                ),
                plot(group, measure),
                class_=measure.name,
            )
            for measure in MEASURES
            if measure is TIME or group.moves_bytes
        )
    )
