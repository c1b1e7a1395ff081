"""Counts the unsafe code of each crate, and compares the counts with the table in CONTRIBUTING.md.

A file counts if it has an unsafe block, function, trait, implementation or extern block. A count
above the table fails: fewer unsafe blocks are easier to review. A count below the table fails too,
so that the table is true; --update writes it.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from pathlib import Path
from typing import NamedTuple

from rust_source import tokens_of

HEAD = "| crate | files with unsafe code | unsafe blocks |\n|---|---|---|\n"
ROW = re.compile(r"\| (\S+) \| (\d+) \| (\d+) \|\n")


class Counts(NamedTuple):
    files: int
    blocks: int


def count_blocks(file: Path) -> int | None:
    """The unsafe blocks of a file; None if it has no unsafe code at all."""
    tokens = list(tokens_of(file.read_text(encoding="utf-8")))
    # `#[unsafe(no_mangle)]` is an attribute, not code.
    after = [
        following.text
        for token, following in itertools.pairwise(tokens)
        if token.kind == "word" and token.text == "unsafe" and following.text != "("
    ]
    return after.count("{") if after else None


def count_crate(crate: Path) -> Counts:
    found = [
        count_blocks(file) for file in sorted(crate.rglob("*.rs")) if "target" not in file.parts
    ]
    blocks = [count for count in found if count is not None]
    return Counts(len(blocks), sum(blocks))


def table_of(text: str) -> tuple[int, int, dict[str, Counts]]:
    """Where the table starts and ends, and its counts."""
    start = end = text.index(HEAD) + len(HEAD)
    counts = {}
    while row := ROW.match(text, end):
        counts[row[1]] = Counts(int(row[2]), int(row[3]))
        end = row.end()
    return start, end, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("crates", nargs="+", type=Path)
    parser.add_argument("--table", type=Path, default=Path("CONTRIBUTING.md"))
    parser.add_argument("--update", action="store_true", help="write the counts to the table")
    arguments = parser.parse_args()

    found = {crate.name: count_crate(crate) for crate in sorted(arguments.crates)}
    text = arguments.table.read_text(encoding="utf-8")
    start, end, expected = table_of(text)
    if arguments.update:
        rows = (f"| {name} | {files} | {blocks} |\n" for name, (files, blocks) in found.items())
        arguments.table.write_text(text[:start] + "".join(rows) + text[end:], encoding="utf-8")
        return 0
    problems = 0
    for name in sorted(found.keys() | expected.keys()):
        files, blocks = found.get(name, Counts(0, 0))
        print(f"{name}: {files} files with unsafe code, {blocks} unsafe blocks")
        if (files, blocks) != (listed := expected.get(name, Counts(0, 0))):
            problems += 1
            print(f"  {arguments.table} lists {listed.files} files and {listed.blocks} blocks")
    if problems:
        print("remove the new unsafe code, or state why it is needed and run with --update")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
