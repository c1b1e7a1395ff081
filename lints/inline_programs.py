#!/usr/bin/env python3
"""Refuses Python programs in strings of the tests: a program is a file under tests/programs.

A program in a string is neither linted nor typed. A string is a program if it has more than one
line that is not blank, parses as Python, and has a statement other than an expression or an
assignment to a name. So tables, TOML and messages of several lines are not programs. In an
f-string, every value stands for a name. Docstrings are not looked at.

A string that is data, for instance the input of a tool that reads Python, has the comment
`# not a program: WHY` on the line where it begins, or on the line above.

usage: inline_programs.py [FOLDER...]
"""

from __future__ import annotations

import argparse
import ast
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

DATA_COMMENT = "# not a program: "


def text_of(node: ast.expr) -> str | None:
    """The text of a string literal, with a name for each value of an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "value" for part in node.values)
    return None


def is_harmless(statement: ast.stmt) -> bool:
    """Whether a statement is one that text or a settings file has by chance."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Name) for target in statement.targets)
    return isinstance(statement, ast.Expr | ast.AnnAssign)


def is_program(text: str) -> bool:
    """Whether text of several lines is Python with statements of its own."""
    if len([line for line in text.splitlines() if line.strip()]) < 2:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(textwrap.dedent(text)).body
    except (SyntaxError, ValueError):
        return False
    return not all(map(is_harmless, body))


def docstrings_and_values(tree: ast.AST) -> set[ast.expr]:
    """The docstrings of a file, and the values of its f-strings."""
    found: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            found.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            found.update(node.values)
    return found


def inline_programs(text: str) -> Iterator[int]:
    """The lines of a file on which a program begins."""
    tree, lines = ast.parse(text), text.splitlines()
    skipped = docstrings_and_values(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node not in skipped:
            found = text_of(node)
            marked = any(
                DATA_COMMENT in line for line in lines[max(node.lineno - 2, 0) : node.lineno]
            )
            if found is not None and is_program(found) and not marked:
                yield node.lineno


def main() -> int:
    parser = argparse.ArgumentParser(description="Refuses Python programs in strings of the tests.")
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("tests")])
    count = 0
    for folder in parser.parse_args().folders:
        for file in sorted(folder.rglob("*.py")):
            for line in sorted(inline_programs(file.read_text(encoding="utf-8"))):
                print(f"{file}:{line}: a program in a string: move it to a file in tests/programs")
                count += 1
    if count:
        print(f"{count} programs in strings")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
