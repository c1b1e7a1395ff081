"""The first figure: the ratio to the best native method, one strip for each conversion."""

from collections.abc import Iterable, Sequence

from tensorferry._tools.report import scale
from tensorferry._tools.report.bundles import Bundle
from tensorferry._tools.report.groups import Comparison, framework
from tensorferry._tools.report.markup import Html, element, join, screen_reader_text
from tensorferry._tools.report.plot import KINDS, percent

# With more dots than this on one strip, dots are translucent.
MAX_OPAQUE_DOTS = 12


def overview(bundles: Sequence[Bundle], common: Iterable[str]) -> Html:
    """One strip for each bundle that has a comparison, on a common scale."""
    shown = [bundle for bundle in bundles if bundle.comparisons]
    ratios = [one.ratio for bundle in shown for one in bundle.comparisons]
    across = scale.around([1.0, *ratios], min_factor=4.0, margin=0.05)
    axis = element(
        "div",
        element("svg", *_labels(across), class_="strip", aria_hidden="true"),
        class_="scale",
    )
    strips = (element("li", *_strip(bundle, across)) for bundle in shown)
    common_text = ", ".join(common)
    return element(
        "figure",
        element(
            "figcaption",
            element("b", "How many times as fast as the best native method"),
            element("span", f" ({common_text})" if common_text else ""),
            element("span", ": one dot per comparison, larger dots for larger tensors"),
        ),
        axis,
        element("ol", *strips),
        class_="overview",
    )


def pair(source: str, target: str) -> Html:
    """The pair with an arrow, which screen readers read as `to`."""
    return join(
        framework(source),
        element("span", " → ", class_="arrow", aria_hidden="true"),
        screen_reader_text(" to "),
        framework(target),
    )


def tags(details: Iterable[str]) -> Html:
    """The details of a conversion, if there are any."""
    text = " · ".join(details)
    return element("span", text, class_="tags") if text else Html("")


def _labels(across: scale.LogScale) -> list[Html]:
    return [
        element(
            "text",
            scale.decimal_text(value) + scale.TIMES_SIGN,
            x=percent(across.position(value)),
            y="20",
            class_="tick even" if value == 1 else "tick",
        )
        for value in _ticks(across)
    ]


def _ticks(across: scale.LogScale) -> list[float]:
    """Round ratios, few enough for a phone; they include 1."""
    return scale.ticks(across, max_count=5)


def _strip(bundle: Bundle, across: scale.LogScale) -> list[Html]:
    comparisons = bundle.comparisons
    ratios = [one.ratio for one in comparisons]
    span_text = scale.between(scale.ratio(min(ratios)), scale.ratio(max(ratios))) + scale.TIMES_SIGN
    name = f"o{bundle.groups[0].number}"
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
    title = f"{bundle.conversion.name}: times as fast as the best native method"
    drawing = element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", _describe(comparisons), id=f"{name}-desc"),
        *lines,
        span,
        *_dots(comparisons, across),
        class_="strip translucent" if len(comparisons) > MAX_OPAQUE_DOTS else "strip",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )
    return [
        element(
            "a",
            pair(bundle.conversion.source, bundle.conversion.target),
            tags(bundle.details),
            href=bundle.link,
        ),
        element("span", drawing, class_="track"),
        element("span", span_text.replace(" to ", "\N{EN DASH}"), class_="words"),
    ]


def _describe(comparisons: Sequence[Comparison]) -> str:
    if len(comparisons) > MAX_OPAQUE_DOTS:
        ratios = [scale.ratio(one.ratio) for one in sorted(comparisons, key=lambda one: one.ratio)]
        return f"{len(ratios)} comparisons: from {ratios[0]} to {ratios[-1]}"
    return "; ".join(f"{scale.size(one.bytes)}: {scale.ratio(one.ratio)}" for one in comparisons)


def _dots(comparisons: Sequence[Comparison], across: scale.LogScale) -> list[Html]:
    """A dot for each comparison, larger ones below smaller ones."""
    sizes = sorted({one.bytes for one in comparisons})
    return [
        element(
            "circle",
            cx=percent(across.position(one.ratio)),
            cy="50%",
            r=f"{2.6 + 3.9 * (sizes.index(one.bytes) + 1) / len(sizes):.1f}",
            class_=f"spot {KINDS[one.ours.shares]}",
        )
        for one in sorted(comparisons, key=lambda one: -one.bytes)
    ]
