#!/usr/bin/env python3
"""Refuses names with words that GLOSSARY.md replaces.

Checked are the names of files, modules, types, functions and constants. The words, what to use
instead, and the exceptions are in discouraged_names.toml. Names are split at `_` and at the borders
of CamelCase; words are compared whole, so that `backend` does not contain `end`.

usage: discouraged_names.py [ROOT] [--under FOLDER]... [--words FILE]
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any

from rust_source import tokens_of

WORDS_FILE = Path(__file__).with_suffix(".toml")
FOLDERS = ("crates", "python", "tests", "benches", "docs", "fuzz", "lints")
FIXTURES = ("tests/lints/",)
KINDS = {
    "fn": "function",
    "mod": "module",
    "const": "constant",
    "static": "constant",
    **dict.fromkeys(("struct", "enum", "union", "trait", "type"), "type"),
}
QUALIFIERS = ("fn", "unsafe", "extern", "async")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
TEST_PREFIXES = ("test_", "case_")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True)
class Name:
    kind: str
    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Rule:
    """One discouraged word, or several in a row."""

    words: tuple[str, ...]
    use: str
    kinds: frozenset[str]
    allowed: tuple[tuple[str, ...], ...]

    def matches(self, name: Name) -> bool:
        words = words_of(name.text)
        found = count(self.words, words)
        return name.kind in self.kinds and found > sum(count(term, words) for term in self.allowed)


def words_of(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in WORD.findall(name))


def count(words: tuple[str, ...], within: tuple[str, ...]) -> int:
    length = len(words)
    return sum(within[at : at + length] == words for at in range(len(within)))


def names_in_rust(file: str, text: str) -> Iterator[Name]:
    """The items of a file, those inside functions and implementations included; not its tests."""
    tokens = list(tokens_of(text))
    is_test = False
    for at, token in enumerate(tokens[:-1]):
        following, before = tokens[at + 1], tokens[at - 1].text if at else ""
        if token.text == "#" and following.text == "[":
            is_test = is_test or [token.text for token in tokens[at + 2 : at + 4]] == ["test", "]"]
        elif token.text == "const" and (before in ("*", "<", ",") or following.text in QUALIFIERS):
            continue  # a pointer, a parameter of a type, a function
        elif token.text in KINDS and following.kind == "word":
            named = tokens[at + 2] if following.text == "mut" else following
            if token.text != "fn" or not is_test:
                yield Name(KINDS[token.text], named.text, file, named.line)
            is_test = False


def names_in_python(file: str, text: str) -> Iterator[Name]:
    """Classes, functions, and constants of modules and classes."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield Name("type", node.name, file, node.lineno)
        elif isinstance(node, FUNCTIONS) and not node.name.startswith(TEST_PREFIXES):
            yield Name("function", node.name, file, node.lineno)
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                yield from assigned_constants(file, statement)


def assigned_constants(file: str, statement: ast.stmt) -> Iterator[Name]:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    for node in (node for target in targets for node in ast.walk(target)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not node.id.islower():
            yield Name("constant" if node.id.isupper() else "type", node.id, file, node.lineno)


def names_under(root: Path, folders: Iterable[str]) -> Iterator[Name]:
    """All names of the project; a folder or file is named once."""
    seen: set[Path] = set()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            file = str(relative)
            if (
                path.suffix not in (".rs", ".py", ".pyi")
                or file.startswith(FIXTURES)
                or "target" in relative.parts
            ):
                continue
            for parent in relative.parents:
                if parent.name and parent not in seen:
                    seen.add(parent)
                    yield Name("module", parent.name, str(parent), 1)
            yield Name("file", path.stem, file, 1)
            read = names_in_rust if path.suffix == ".rs" else names_in_python
            yield from read(file, path.read_text(encoding="utf-8"))


def excepts(exception: dict[str, str], name: Name) -> bool:
    return fnmatch(name.text, exception["name"]) and fnmatch(name.file, exception.get("file", "*"))


def read_rules(config: dict[str, Any]) -> list[Rule]:
    every = frozenset({*KINDS.values(), "file"})
    return [
        Rule(
            tuple(words.split("_")),
            entry["use"],
            frozenset(entry.get("kinds", every)),
            tuple(tuple(term.split("_")) for term in entry.get("allowed", ())),
        )
        for entry in config["words"]
        for words in entry["words"]
    ]


def problems_of(
    names: Iterable[Name], rules: list[Rule], exceptions: list[dict[str, str]], unused: set[int]
) -> Iterator[str]:
    """A line for each name that is refused; the exceptions that apply leave `unused`."""
    for name in names:
        for rule in rules:
            if not rule.matches(name):
                continue
            applying = {at for at, each in enumerate(exceptions) if excepts(each, name)}
            unused -= applying
            if not applying:
                advice = f"uses the discouraged word `{'_'.join(rule.words)}`: use {rule.use}"
                yield f"{name.file}:{name.line}: {name.kind} `{name.text}` {advice}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Refuses names with words of the glossary.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(), help="the project's root")
    parser.add_argument("--under", action="append", help="check this folder only")
    parser.add_argument("--words", type=Path, default=WORDS_FILE, help="the words and exceptions")
    options = parser.parse_args()
    config = tomllib.loads(options.words.read_text(encoding="utf-8"))
    exceptions = config.get("exception", [])
    unused = set(range(len(exceptions)))
    names = names_under(options.root, options.under or FOLDERS)
    problems = list(problems_of(names, read_rules(config), exceptions, unused))
    for at in [] if options.under else sorted(unused):
        where = f" in {exceptions[at]['file']}" if "file" in exceptions[at] else ""
        exception = f"the exception `{exceptions[at]['name']}`{where}"
        problems.append(f"{options.words.name}: {exception} matches nothing: remove it")
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} problems; the words are in {options.words}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
