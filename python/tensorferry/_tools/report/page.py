"""The page: its head, the headline, and the order of its sections."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tensorferry._tools.bench import load
from tensorferry._tools.report import bundles, controls, findings, scale, style, tables
from tensorferry._tools.report.groups import Group
from tensorferry._tools.report.markup import Html, code, element, join
from tensorferry._tools.report.overview import overview, pair, tags
from tensorferry._tools.report.sections import section

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 12 5 7l4 2 6-7' fill='none' stroke='%230a7fd4' stroke-width='2.4'/%3E%3C/svg%3E"
)


def page(result: Mapping[str, Any], groups: Sequence[Group]) -> str:
    """The whole document."""
    facets = controls.facets(groups)
    sheet = style.sheet(groups, [(facet.name, len(facet.values)) for facet in facets])
    finding = findings.headline(groups)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=style.policy(sheet)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="description", content=finding),
        element("title", "tensorferry bench: ", finding),
        element("link", rel="icon", href=ICON),
        element("style", Html(sheet)),
    )
    machine = result.get("machine") or {}
    shows_ratios = any(group.comparisons for group in groups)
    parts: list[object] = [
        _header(finding, groups, machine),
        _warning(result),
        _contents(len(groups), shows_ratios=shows_ratios),
    ]
    if shows_ratios:
        glance = element("h2", "Overview", id="glance")
        parts.append(
            element(
                "section",
                glance,
                overview(bundles.bundles(groups), bundles.common(groups)),
                aria_labelledby="glance",
            )
        )
    parts.append(_plots(groups, facets))
    if shows_ratios:
        parts.append(tables.ratios(groups, facets))
    parts.append(tables.machine(machine, result.get("settings") or {}))
    body = element(
        "body",
        element("a", "Skip to the plots", href="#plots", class_="skip"),
        element("main", *parts),
        element("footer", element("p", "Made by ", code("tensorferry bench"), ".")),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _header(finding: str, groups: Sequence[Group], machine: Mapping[str, Any]) -> Html:
    # The headline has no text from the result, so markup can be inserted.
    headline = re.sub(r"(\d[\d.,/]*\d|\d)", r"<b>\1</b>", finding).replace(
        "ferry.to", "<code>ferry.to</code>"
    )
    description = [
        _processor(machine.get("cpu")),
        f"{machine['cores']} cores" if machine.get("cores") else "",
        str(machine["gpu"]).split(",")[0] if machine.get("gpu") else "no GPU",
        tables.date(machine.get("date")),
    ]
    where = ", ".join(fact for fact in description if fact)
    sizes = sorted({size for group in groups for size in group.sizes})
    endpoints = scale.between(*(scale.size(sizes[end]) for end in (0, -1))) if sizes else ""
    span = f" {'from' if len(sizes) > 1 else 'at'} {endpoints}" if sizes else ""
    spread = " ".join(filter(None, (findings.span(groups), findings.tally(groups))))
    return element(
        "header",
        element("p", "tensorferry bench", class_="eyebrow"),
        element("h1", Html(headline)),
        element("p", f"{spread} Measured{span} on {where}.".strip(), class_="lede"),
        class_="top",
    )


def _warning(result: Mapping[str, Any]) -> Html:
    """The signs that the machine was busy, before any figure is believed."""
    found = load.signs(result)
    if not found:
        return Html("")
    return element(
        "p",
        element("b", "The machine was busy, so the ratios are doubtful: "),
        f"{load.join_signs(found)}. Repeat the measurement on an idle machine.",
        class_="busy",
        role="note",
    )


def _contents(count: int, *, shows_ratios: bool) -> Html:
    """The table of contents."""
    links = [("plots", "Time and bandwidth by size"), ("machine", "Machine and versions")]
    if shows_ratios:
        links = [
            ("glance", "Overview"),
            links[0],
            ("ratios", "Ratios: ahead, level, behind"),
            links[1],
        ]
    entries = (
        element(
            "li",
            element("a", title, href=f"#{target}"),
            element("span", f" {count} conversion{'s' * (count != 1)}", class_="tags")
            if target == "plots"
            else "",
        )
        for target, title in links
    )
    return element("nav", element("ol", *entries), class_="contents", aria_label="Contents")


def _plots(groups: Sequence[Group], facets: Sequence[controls.Facet]) -> Html:
    count = len(groups)
    shown = element("p", f" of {count} conversion{'' if count == 1 else 's'} shown", class_="shown")
    # Siblings: the CSS rules of a control select elements that follow the controls.
    return join(
        element("h2", "Time and bandwidth by size", id="plots", tabindex="-1"),
        controls.legend(),
        controls.controls(facets) if groups else "",
        element(
            "div",
            *(_bundle(bundle, facets) for bundle in bundles.bundles(groups)),
            shown if facets and count <= bundles.MAX_SEPARATE_GROUPS else "",
            class_="groups",
        ),
    )


def _bundle(bundle: bundles.Bundle, facets: Sequence[controls.Facet]) -> Html:
    """A group, or the groups of a bundle in a collapsed element."""
    classes = [controls.classes(group, facets) for group in bundle.groups]
    shown = map(section, bundle.groups, classes)
    if len(bundle.groups) == 1:
        return join(*shown)
    all_classes = " ".join(dict.fromkeys(" ".join(classes).split()))
    title = pair(bundle.conversion.source, bundle.conversion.target)
    return element(
        "details",
        element("summary", title, tags(bundle.details)),
        *shown,
        class_=f"bundle {all_classes}",
    )


def _processor(name: object) -> str:
    """The name of a processor without trademark signs."""
    return re.sub(r"\((R|TM)\)", "", str(name or ""), flags=re.IGNORECASE)
