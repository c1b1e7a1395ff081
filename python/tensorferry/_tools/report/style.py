"""The style sheet: report.css, the colours, and the rules of the controls.

The page has no scripts. A control is a radio button with a CSS rule on `:has`, so the page can
forbid all scripts, whatever text a result contains. The rules use `:has` on a form or a group,
because `:has` on the whole body makes a long page slow.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from tensorferry._tools.report.groups import Group
from tensorferry._tools.report.series_style import BACKGROUNDS, COLOURS


def sheet(groups: Sequence[Group], facets: Sequence[tuple[str, int]]) -> str:
    """The style sheet for these groups, with the names and value counts of the filters."""
    methods = max((series.number for group in groups for series in group.series), default=-1) + 1
    sizes = max((len(group.sizes) for group in groups), default=0)
    text = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    rules = [
        text,
        f":root{{{_colours('light')}}}",
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_colours('dark')}}}}}",
        "@media (forced-colors:active){:root{"
        + "".join(f"--c{number}:CanvasText;" for number in range(len(COLOURS["light"])))
        + "--paper:Canvas}}",
        *(f".s{number}{{--ink:var(--c{number})}}" for number in range(len(COLOURS["light"]))),
        *(_hover_rules(number) for number in range(sizes)),
        *(_selection_rules(number) for number in range(methods)),
        *(_filter_rule(name, number) for name, count in facets for number in range(count)),
    ]
    return "\n".join(rules)


def policy(style: str) -> str:
    """The content security policy: this style sheet and inline images only."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _colours(theme: str) -> str:
    named = [f"--c{number}:{colour}" for number, colour in enumerate(COLOURS[theme])]
    return ";".join((f"--paper:{BACKGROUNDS[theme]}", *named))


def _hover_rules(number: int) -> str:
    """While the pointer is on a size, the table shows its values and both plots mark it."""
    here = f".group:has(.c{number}:hover)"
    return (
        f"{here} .at{{display:none}}"
        f"{here} .at.a{number}{{display:inline}}"
        f"{here} .c{number} .guide{{opacity:1}}"
    )


def _selection_rules(number: int) -> str:
    """The other methods fade if one is selected or under the pointer."""
    picked, pointed = f".group:has(.pick-{number}:checked)", f".group:has(.k{number}:hover)"
    faded = f"{picked} :is(.plot .stroke,.mark):not(.m{number})"
    faded += f",{pointed} :is(.plot .stroke,.mark):not(.m{number})"
    return f"{faded}{{opacity:.13}}{pointed} .plot .m{number}{{opacity:1!important}}"


def _filter_rule(name: str, number: int) -> str:
    """Hides groups that a filter excludes, unless a link targets them."""
    chosen = f".controls:has(#{name}-{number}:checked)"
    return f"{chosen}~* .item:not(.{name}-{number}):not(:target){{display:none}}"
