"""The public interface is what DESIGN.md says it is."""

from __future__ import annotations

import re
from pathlib import Path

from support import subprocesses
from support.public_names import rows

import tensorferry as ferry

NAME = re.compile(r"`([^`]+)`").findall
DESIGN = (Path(__file__).parents[1] / "DESIGN.md").read_text()


def documented() -> dict[str, tuple[str, list[str]]]:
    """The rows of the table in DESIGN.md."""
    section = DESIGN.partition("\n## Public names\n")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("| `"):
            assert len(cells) == 6, line
            found[cells[1].strip("`")] = (cells[2], NAME(cells[3]))
    return found


def test_the_table_has_every_public_name_and_no_other() -> None:
    table, package = documented(), rows()
    assert sorted(table) == sorted(package)
    for name, row in package.items():
        assert table[name] == row, name


def test_names_that_were_renamed_are_gone() -> None:
    """There are no aliases: a name that a row had before is not in the package."""
    before = [line.split("|")[4].strip() for line in DESIGN.splitlines() if line.startswith("| `")]
    names = [name for cell in before if re.fullmatch(r"(`\w+`(, )?)+", cell) for name in NAME(cell)]
    assert len(names) > 20
    assert [name for name in names if hasattr(ferry, name)] == []


def test_dir_shows_the_public_names_only() -> None:
    """Also after submodules were imported, which Python makes attributes of the package."""
    shown = subprocesses.run_program("front/imports_on_demand.py", "names")
    assert shown.split() == sorted(ferry.__all__)
