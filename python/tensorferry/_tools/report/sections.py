"""One group of the report: its finding, plots, key, what failed, and all of it as a table."""

from collections.abc import Iterable, Sequence

from tensorferry._tools.report import findings, scale
from tensorferry._tools.report.groups import Group, Row, Series, failures, memory
from tensorferry._tools.report.markup import Html, code, element, unseen
from tensorferry._tools.report.overview import pair, tags
from tensorferry._tools.report.plot import plots
from tensorferry._tools.report.series_style import glyph

MEMORY = {"shares": "shares memory", "copies": "copies", "unknown": "memory unknown"}


def section(group: Group, classes: str) -> Html:
    """The whole of one group; by the classes, filters find it."""
    body = [element("p", findings.summary(group), class_="finding")]
    if group.drawn:
        body += [element("div", plots(group), class_="plots"), _key(group)]
    body += [_failures(group)]
    if group.drawn:
        body += [_data(group)]
    return element(
        "article",
        element(
            "header",
            element("h3", pair(group.way.source, group.way.target), id=f"g{group.number}-name"),
            element("p", tags(group.way.details)),
        ),
        *body,
        id=f"g{group.number}",
        class_=f"group {classes}",
        tabindex="-1",
        aria_labelledby=f"g{group.number}-name",
    )


def table(caption: object, head: Sequence[object], rows: Iterable[Html], class_: str) -> Html:
    """A table that scrolls in a box of its own, which the keyboard reaches."""
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


def _key(group: Group) -> Html:
    """The methods, how they look, and their values at the size pointed at, or else at the last."""
    name = f"g{group.number}-pick"
    everything = element(
        "label",
        element("input", type="radio", name=name, value="all", checked=True, class_="pick-all"),
        element("span", "All methods"),
    )
    sizes = group.sizes
    at = [
        element("span", f"at {scale.size(count)}", class_=_when(number, sizes))
        for number, count in enumerate(sizes)
    ]
    head = element(
        "tr",
        element("th", everything, scope="col"),
        element("th", "Time ", *at, scope="col"),
        element("th", "Bandwidth", scope="col", class_="rate"),
        element("th", f"Best native = 1{scale.MANY}", scope="col"),
    )
    return element(
        "table",
        element("caption", unseen(f"Methods of {group.way.name}, with their values at one size")),
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
    rates = [_cell(scale.rate(row.rate) if row else "", n, sizes) for n, row in enumerate(rows)]
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
    """How many times as fast as the best native way, or nothing where there is none."""
    times = group.against_native(row)
    return "" if times is None else scale.times(times)


def _cell(text: str, number: int, sizes: Sequence[int]) -> Html:
    return element("span", text or "\N{EN DASH}", class_=_when(number, sizes))


def _when(number: int, sizes: Sequence[int]) -> str:
    """The classes of what is shown while a size is pointed at; the last size is, by itself."""
    return f"at a{number}" + (" resting" if number + 1 == len(sizes) else "")


def _failures(group: Group) -> Html:
    """What could not be done, and why."""
    lines = [
        element(
            "li",
            code(method),
            element("span", " cannot", class_="cannot"),
            f" at {findings.listed([scale.size(count) for count in sizes])}: ",
            element("span", why, class_="why"),
        )
        for method, why, sizes in failures(group)
    ]
    return element("ul", *lines, class_="failures") if lines else Html("")


def _data(group: Group) -> Html:
    """Everything that the plots show, as a table."""
    head = (
        *("Method", "Size", "Median", "Middle half", "Bandwidth", f"Best native = 1{scale.MANY}"),
        *("Memory", "Extra bytes", f"Calls {scale.MANY} rounds"),
    )
    rows = (_line(group, row) for series in group.series for row in series.rows)
    count = len(group.drawn)
    words = "The one measurement" if count == 1 else f"All {count} measurements"
    whole = ", ".join((f"of {group.way.name}", *group.way.details))
    return element(
        "details",
        element("summary", f"{words} as a table", unseen(f" {whole}")),
        table(unseen(f"{words} {whole}"), head, rows, f"data-{group.number}"),
    )


def _line(group: Group, row: Row) -> Html:
    low, high = row.quartiles
    share = {True: "shares", False: "copies", None: "unknown"}[row.shares]
    extra = "" if row.extra_bytes is None else scale.size(row.extra_bytes)
    cells = (
        scale.size(row.bytes),
        scale.duration(row.time),
        scale.between(scale.duration(low), scale.duration(high)),
        scale.rate(row.rate),
        times_native(group, row),
        share if row.checked else f"{share}, values not checked",
        extra,
        f"{row.calls // row.rounds} {scale.MANY} {row.rounds}" if row.calls and row.rounds else "",
    )
    return element(
        "tr",
        element("th", code(row.method), scope="row"),
        *(element("td", text) for text in cells),
        class_="ours" if row.ours else None,
    )
