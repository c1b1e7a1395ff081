"""The section of one group: its finding, plots, table of methods, failures and data."""

from collections.abc import Iterable, Sequence

from tensorferry._tools.report import findings, scale
from tensorferry._tools.report.groups import Group, Row, Series, failures, memory
from tensorferry._tools.report.markup import Html, code, element, screen_reader_text
from tensorferry._tools.report.overview import pair, tags
from tensorferry._tools.report.plot import plots
from tensorferry._tools.report.series_style import glyph

MEMORY = {"shares": "shares memory", "copies": "copies", "unknown": "memory unknown"}


def section(group: Group, classes: str) -> Html:
    """The section of one group; `classes` are for the filters."""
    body = [element("p", findings.summary(group), class_="finding")]
    if group.drawn:
        body += [element("div", plots(group), class_="plots"), _methods_table(group)]
    body += [_failures(group)]
    if group.drawn:
        body += [_data(group)]
    return element(
        "article",
        element(
            "header",
            element(
                "h3",
                pair(group.conversion.source, group.conversion.target),
                id=f"g{group.number}-name",
            ),
            element("p", tags(group.conversion.details)),
        ),
        *body,
        id=f"g{group.number}",
        class_=f"group {classes}",
        tabindex="-1",
        aria_labelledby=f"g{group.number}-name",
    )


def table(caption: object, head: Sequence[object], rows: Iterable[Html], class_: str) -> Html:
    """A table in a scrollable box, which the keyboard can focus."""
    label = f"{class_}-caption"
    columns = (element("th", title, scope="col") for title in head)
    return element(
        "div",
        element(
            "table",
            element("caption", caption, id=label),
            element("thead", element("tr", *columns)),
            element("tbody", *rows),
        ),
        class_=f"scroll {class_.split('-')[0]}",
        role="group",
        aria_labelledby=label,
        tabindex="0",
    )


def _methods_table(group: Group) -> Html:
    """The methods with their style, and their values at the size under the pointer or the last."""
    name = f"g{group.number}-pick"
    everything = element(
        "label",
        element("input", type="radio", name=name, value="all", checked=True, class_="pick-all"),
        element("span", "All methods"),
    )
    sizes = group.sizes
    at = [
        element("span", f"at {scale.size(count)}", class_=_size_classes(number, sizes))
        for number, count in enumerate(sizes)
    ]
    head = element(
        "tr",
        element("th", everything, scope="col"),
        element("th", "Time ", *at, scope="col"),
        element("th", "Bandwidth", scope="col", class_="rate"),
        element("th", f"Best native = 1{scale.TIMES_SIGN}", scope="col"),
    )
    return element(
        "table",
        element(
            "caption",
            screen_reader_text(
                f"Methods of {group.conversion.name}, with their values at one size"
            ),
        ),
        element("thead", head),
        element("tbody", *(_entry(group, series, name, sizes) for series in group.series)),
        class_="key",
    )


def _entry(group: Group, series: Series, name: str, sizes: Sequence[int]) -> Html:
    kind = memory(series.rows)
    label = element(
        "label",
        element(
            "input", type="radio", name=name, value=series.number, class_=f"pick-{series.number}"
        ),
        element(
            "span",
            glyph(series.number, kind, ours=series.ours),
            element(
                "span", code(series.method), element("small", MEMORY.get(kind, kind)), class_="name"
            ),
        ),
    )
    rows = [series.at(count) for count in sizes]
    times = [_cell(scale.duration(row.time) if row else "", n, sizes) for n, row in enumerate(rows)]
    rates = [_cell(_rate(row) if row else "", n, sizes) for n, row in enumerate(rows)]
    ratios = [
        _cell(times_native(group, row) if row else "", n, sizes) for n, row in enumerate(rows)
    ]
    return element(
        "tr",
        element("th", label, scope="row"),
        element("td", *times),
        element("td", *rates, class_="rate"),
        element("td", *ratios),
        class_=f"entry k{series.number}" + (" ours" if series.ours else ""),
    )


def times_native(group: Group, row: Row) -> str:
    """How many times as fast as the best native method; empty without a native method."""
    times = group.against_native(row)
    return "" if times is None else scale.times(times)


def _rate(row: Row) -> str:
    """The bandwidth of a row; empty for a share, which moves no byte."""
    return scale.rate(row.rate) if row.moves_bytes else ""


def _cell(text: str, number: int, sizes: Sequence[int]) -> Html:
    return element("span", text or "\N{EN DASH}", class_=_size_classes(number, sizes))


def _size_classes(number: int, sizes: Sequence[int]) -> str:
    """The CSS classes of values at one size; those of the last size are shown by default."""
    return f"at a{number}" + (" resting" if number + 1 == len(sizes) else "")


def _failures(group: Group) -> Html:
    """The failed methods, and the reasons."""
    lines = [
        element(
            "li",
            code(method),
            element("span", " failed", class_="cannot"),
            f" at {findings.listed([scale.size(count) for count in sizes])}: ",
            element("span", reason, class_="why"),
        )
        for method, reason, sizes in failures(group)
    ]
    return element("ul", *lines, class_="failures") if lines else Html("")


def _data(group: Group) -> Html:
    """The data of the plots, as a table."""
    head = (
        *(
            "Method",
            "Size",
            "Median",
            "Interquartile range",
            "Bandwidth",
            f"Best native = 1{scale.TIMES_SIGN}",
        ),
        *("Memory", "Extra bytes", f"Calls {scale.TIMES_SIGN} rounds"),
    )
    rows = (_line(group, row) for series in group.series for row in series.rows)
    count = len(group.drawn)
    title = "The only measurement" if count == 1 else f"All {count} measurements"
    whole = ", ".join((f"of {group.conversion.name}", *group.conversion.details))
    return element(
        "details",
        element("summary", f"{title} as a table", screen_reader_text(f" {whole}")),
        table(screen_reader_text(f"{title} {whole}"), head, rows, f"data-{group.number}"),
    )


def _line(group: Group, row: Row) -> Html:
    low, high = row.quartiles
    share = {True: "shares", False: "copies", None: "unknown"}[row.shares]
    extra = "" if row.extra_bytes is None else scale.size(row.extra_bytes)
    cells = (
        scale.size(row.bytes),
        scale.duration(row.time),
        scale.between(scale.duration(low), scale.duration(high)),
        _rate(row),
        times_native(group, row),
        share if row.checked else f"{share}, values not checked",
        extra,
        f"{row.calls // row.rounds} {scale.TIMES_SIGN} {row.rounds}"
        if row.calls and row.rounds
        else "",
    )
    return element(
        "tr",
        element("th", code(row.method), scope="row"),
        *(element("td", text) for text in cells),
        class_="ours" if row.ours else None,
    )
