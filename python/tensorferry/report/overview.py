"""The first figure: how many times as fast as the best native way, a strip for each group."""

from collections.abc import Sequence

from tensorferry.report import scale
from tensorferry.report.groups import Comparison, Group, framework
from tensorferry.report.markup import Html, element, join, unseen
from tensorferry.report.plot import KINDS, percent


def overview(groups: Sequence[Group]) -> Html:
    """One strip for each group that has a comparison, all on one scale."""
    shown = [group for group in groups if group.comparisons]
    ratios = [one.ratio for group in shown for one in group.comparisons]
    across = scale.around([1.0, *ratios], least=4.0, room=0.05)
    axis = element(
        "div",
        element("svg", *_labels(across), class_="strip", aria_hidden="true"),
        class_="scale",
    )
    strips = (element("li", *_strip(group, across)) for group in shown)
    return element(
        "figure",
        element(
            "figcaption",
            element("b", "How many times as fast as the best native way"),
            element("span", ": a dot for each size, larger dots for larger tensors"),
        ),
        axis,
        element("ol", *strips),
        class_="overview",
    )


def pair(group: Group) -> Html:
    """The pair with an arrow, which is read as `to`."""
    return join(
        framework(group.way.source),
        element("span", " → ", class_="arrow", aria_hidden="true"),
        unseen(" to "),
        framework(group.way.target),
    )


def tags(group: Group) -> Html:
    """What else tells a group from others."""
    return element("span", " · ".join(group.way.details), class_="tags")


def _labels(across: scale.LogScale) -> list[Html]:
    return [
        element(
            "text",
            scale.plain(value) + scale.MANY,
            x=percent(across.position(value)),
            y="20",
            class_="tick even" if value == 1 else "tick",
        )
        for value in _ticks(across)
    ]


def _ticks(across: scale.LogScale) -> list[float]:
    """Round ratios, few enough for a phone; 1 is always among them."""
    return scale.ticks(across, most=5)


def _strip(group: Group, across: scale.LogScale) -> list[Html]:
    comparisons = group.comparisons
    ratios = [one.ratio for one in comparisons]
    words = scale.between(scale.ratio(min(ratios)), scale.times(max(ratios)))
    name = f"o{group.number}"
    lines = [
        element(
            "line",
            x1=percent(across.position(value)),
            x2=percent(across.position(value)),
            y1="0",
            y2="100%",
            class_="even" if value == 1 else "grid",
        )
        for value in _ticks(across)
    ]
    span = element(
        "line",
        x1=percent(across.position(min(ratios))),
        x2=percent(across.position(max(ratios))),
        y1="50%",
        y2="50%",
        class_="span",
    )
    each = "; ".join(f"{scale.size(one.bytes)}: {scale.ratio(one.ratio)}" for one in comparisons)
    drawing = element(
        "svg",
        element(
            "title",
            f"{group.way.name}: times as fast as the best native way",
            id=f"{name}-title",
        ),
        element("desc", each, id=f"{name}-desc"),
        *lines,
        span,
        *(_dot(one, comparisons, across) for one in comparisons),
        class_="strip",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )
    return [
        element("a", pair(group), tags(group), href=f"#g{group.number}"),
        element("span", drawing, class_="lane"),
        element("span", words.replace(" to ", "\N{EN DASH}"), class_="words"),
    ]


def _dot(one: Comparison, comparisons: Sequence[Comparison], across: scale.LogScale) -> Html:
    rank = (comparisons.index(one) + 1) / len(comparisons)
    return element(
        "circle",
        cx=percent(across.position(one.ratio)),
        cy="50%",
        r=f"{2.6 + 3.9 * rank:.1f}",
        class_=f"spot {KINDS[one.ours.shares]}",
    )
