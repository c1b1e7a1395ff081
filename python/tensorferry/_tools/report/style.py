"""The style of the page: report.css, the colours, and the rules that make its controls work.

The page has no script. A control is a radio button, and what it does is a rule on `:has`: so the
page can forbid every script, and whatever a result has in it, nothing in it can run. What `:has`
stands on is kept small, a form or a group: a rule on the whole body makes a long page slow.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from tensorferry._tools.report.groups import Group
from tensorferry._tools.report.series_style import COLOURS, PAPER


def sheet(groups: Sequence[Group], facets: Sequence[tuple[str, int]]) -> str:
    """The whole style for these groups, with filters of so many values each."""
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
        *(_pointing(number) for number in range(sizes)),
        *(_picking(number) for number in range(methods)),
        *(_filtering(name, number) for name, count in facets for number in range(count)),
    ]
    return "\n".join(rules)


def policy(style: str) -> str:
    """What the page may load and run: this one style, images within it, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _colours(theme: str) -> str:
    named = [f"--c{number}:{colour}" for number, colour in enumerate(COLOURS[theme])]
    return ";".join((f"--paper:{PAPER[theme]}", *named))


def _pointing(number: int) -> str:
    """While a size is pointed at, the key shows its values, and both plots where it is."""
    here = f".group:has(.c{number}:hover)"
    return (
        f"{here} .at{{display:none}}"
        f"{here} .at.a{number}{{display:inline}}"
        f"{here} .c{number} .guide{{opacity:1}}"
    )


def _picking(number: int) -> str:
    """A method that is picked, or that is pointed at, stands out, because the others fade."""
    picked, pointed = f".group:has(.pick-{number}:checked)", f".group:has(.k{number}:hover)"
    faded = f"{picked} :is(.plot .stroke,.mark):not(.m{number})"
    faded += f",{pointed} :is(.plot .stroke,.mark):not(.m{number})"
    return f"{faded}{{opacity:.13}}{pointed} .plot .m{number}{{opacity:1!important}}"


def _filtering(name: str, number: int) -> str:
    """What does not fit a filter is hidden, unless a link leads to it."""
    chosen = f".controls:has(#{name}-{number}:checked)"
    return f"{chosen}~* .item:not(.{name}-{number}):not(:target){{display:none}}"
