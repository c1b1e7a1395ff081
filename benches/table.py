"""What a section of the benchmarks hands back, and how it is printed.

A row maps the heading of a column to its figure, and may hold more that only the record keeps. The
tables are Markdown, padded so that they read well in a terminal too.
"""

from dataclasses import dataclass, field
from typing import Any

PASSED, MISSED = "pass", "MISS"
VOID = r"""
 #     #  #####  ### ######
 #     # #     #  #  #     #
 #     # #     #  #  #     #
  #   #  #     #  #  #     #
   # #   #     #  #  #     #
    #     #####  ### ######
"""


@dataclass
class Section:
    """The result of one section.

    `columns` maps each heading to the format of its figures; an empty format is for text.
    """

    title: str
    columns: dict[str, str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def render(section: Section) -> str:
    """The section as Markdown."""
    parts = [f"## {section.title}"]
    if section.rows:
        parts.append(_table(section))
    parts += section.notes
    return "\n\n".join(parts) + "\n"


def verdict(passed: bool) -> str:
    """What the column "verdict" says of a target that was met, or was not."""
    return PASSED if passed else MISSED


def misses(section: Section) -> int:
    """How many rows missed a target."""
    return sum(MISSED in str(row.get("verdict", "")) for row in section.rows)


def _table(section: Section) -> str:
    cells = [list(section.columns)]
    for row in section.rows:
        cells.append([_cell(row.get(head), form) for head, form in section.columns.items()])
    widths = [max(len(line[column]) for line in cells) for column in range(len(section.columns))]
    numeric = [bool(form) for form in section.columns.values()]
    shapes = list(zip(widths, numeric, strict=True))
    rule = ["-" * (width - 1) + (":" if right else "-") for width, right in shapes]
    lines = []
    for line in [cells[0], rule, *cells[1:]]:
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, (width, right) in zip(line, shapes, strict=True)
        ]
        lines.append("| " + " | ".join(padded) + " |")
    return "\n".join(lines)


def _cell(figure: Any, form: str) -> str:
    return "-" if figure is None else format(figure, form)
