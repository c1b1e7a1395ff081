#!/usr/bin/env python3
"""Proves that no two Rust source files of a crate import each other, directly or through others.

File A depends on file B if A names an item that B defines: in a `use`, or by a path in an expression or a type. What
the name stands for is resolved as the compiler does it, through imports and re-exports, to the file that defines it.

- A file that only declares modules and re-exports items is looked through: it defines nothing.
- Naming a module alone (`use crate::pool;`) is no dependency; naming something in it (`pool::take()`) is one.
- A path through a type (`Error::new`, `Kind::Dense`) depends on the file that defines the type.
- Items under `#[cfg(test)]` or `#[test]` are left out, as are attributes, comments and strings.

Method calls on values are not seen: a file that only calls methods of a type does not name it.

usage: module_cycles.py CRATE...              (exit status 1 if there is a cycle)
       module_cycles.py CRATE... --edges FILE (prints what one file depends on)
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*) | (?P<block>/\*)
      | (?P<string>\b(?:br|cr|r)(?P<hashes>\#*)".*?"(?P=hashes) | (?:\b[bc])?"(?:\\.|[^"\\])*")
      | (?P<char>(?:\bb)?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'\n])' | '\w+)
      | (?P<word>(?:r\#)?[A-Za-z_]\w*) | (?P<number>\d\w*) | (?P<space>\s+)
      | (?P<sign>::|\.\.=|\.\.|->|=>|.)""",
    re.DOTALL | re.VERBOSE,
)
TEST = re.compile(r"test$|cfg\((all\()?test\b")
PATH_ATTRIBUTE = re.compile(r'path="(.*)"$')
OPENING, CLOSING = "([{", ")]}"
MODIFIERS = {"unsafe", "async", "default", "safe"}
DEFINING = {"fn", "struct", "enum", "union", "trait", "type", "const", "static"}
ITEM_WORDS = DEFINING | MODIFIERS | {"pub", "mod", "use", "impl", "extern", "macro_rules"}
Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int


@dataclass
class Import:
    path: Path_
    glob: bool = False


@dataclass
class Scope:
    """The imports of one block or module."""

    parent: Scope | None
    names: dict[str, list[Import]] = field(default_factory=dict)
    globs: list[Import] = field(default_factory=list)


@dataclass
class Module:
    file: Path
    parent: Module | None
    scope: Scope = field(default_factory=lambda: Scope(None))
    children: dict[str, Module] = field(default_factory=dict)
    items: set[str] = field(default_factory=set)
    macro_words: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Reference:
    module: Module
    scope: Scope
    named: Import
    line: int


# What a path leads to: a module, the file that defines an item, or None outside of the crate.
Target = Module | Path | None
# Scopes and names whose imports are being followed.
Seen = frozenset[tuple[int, str]]


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of Rust source text; comments and spaces are dropped."""
    position, line = 0, 1
    while match := TOKEN.match(text, position):
        kind, end = str(match.lastgroup), match.end()
        if kind == "hashes":
            kind = "string"
        if kind == "block":
            depth = 1
            while depth and (mark := re.compile(r"/\*|\*/").search(text, end)):
                depth += 1 if mark.group() == "/*" else -1
                end = mark.end()
        elif kind not in ("comment", "space"):
            yield Token(kind, text[position:end].removeprefix("r#"), line)
        line += text.count("\n", position, end)
        position = end


class Crate:
    """The modules of one crate, what they define, and what they name."""

    def __init__(self, root: Path) -> None:
        self.defining: set[Path] = set()
        self.references: list[Reference] = []
        self.root = Module(root, None)
        Parser(self, self.root, root.parent).parse_file()

    def lookup(self, module: Module, scope: Scope, name: str, seen: Seen) -> list[Target]:
        """What a name means in one scope; empty if nothing there explains it."""
        found: list[Target] = []
        if scope is module.scope:
            found += [module.children[name]] if name in module.children else []
            found += [module.file] if name in module.items else []
        if (key := (id(scope), name)) in seen:  # `use to::to;` beside `mod to;`
            return found
        for named in scope.names.get(name, []):
            found += self.resolve(module, scope, named.path, seen | {key})
        for glob in [] if found else scope.globs:
            for target in self.resolve(module, scope, glob.path, seen | {key}):
                if isinstance(target, Module):
                    found += self.lookup(target, target.scope, name, seen | {key})
        return found

    def resolve(self, module: Module, scope: Scope, path: Path_, seen: Seen) -> list[Target]:
        """What a path means in a scope of a module."""
        head, *rest = path
        targets: list[Target] = []
        if head == "crate":
            targets = [self.root]
        elif head in ("self", "super"):
            here = module if head == "self" else module.parent or module
            while rest and rest[0] == "super":
                here, rest = here.parent or here, rest[1:]
            targets = [here]
        else:
            inner: Scope | None = scope
            while inner is not None and not targets:
                targets = self.lookup(module, inner, head, seen)
                inner = inner.parent
            targets = targets or [None]
        for segment in rest:
            modules = [target for target in targets if isinstance(target, Module)]
            if not modules:
                break  # a variant or a function of a type
            targets = [target for inside in modules for target in self.member(inside, segment, seen)]
        return targets

    def member(self, module: Module, name: str, seen: Seen) -> list[Target]:
        """What a name means after the path of a module."""
        if found := self.lookup(module, module.scope, name, seen):
            return found
        # Neither defined nor imported by name: a macro made it, or it comes from another crate's `*`.
        globs = [glob.path for glob in module.scope.globs]
        foreign = any(None in self.resolve(module, module.scope, path, seen) for path in globs)
        return [None if foreign and name not in module.macro_words else module.file]

    def edges(self) -> dict[Path, dict[Path, tuple[int, str]]]:
        """For each file, the files it depends on, with the first line and path that says so."""
        edges: dict[Path, dict[Path, tuple[int, str]]] = {}
        for reference in self.references:
            file, named = reference.module.file, reference.named
            for target in self.resolve(reference.module, reference.scope, named.path, frozenset()):
                if isinstance(target, Module):
                    target = target.file if named.glob else None
                if target is None or target == file or not {file, target} <= self.defining:
                    continue
                text = "::".join(named.path) + ("::*" if named.glob else "")
                edges.setdefault(file, {}).setdefault(target, (reference.line, text))
        return edges


class Parser:
    """Reads one file into a module and the modules in it."""

    def __init__(self, crate: Crate, module: Module, folder: Path) -> None:
        self.crate, self.module, self.folder, self.at = crate, module, folder, 0
        self.tokens = list(tokens_of(module.file.read_text(encoding="utf-8")))
        self.tokens.append(Token("end", "", 0))

    def parse_file(self) -> None:
        self.parse_items(self.module, self.folder)

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def text(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)].text

    def attribute(self) -> str:
        """The text of an attribute, which is passed over."""
        self.at += 2 if self.text(1) == "!" else 1
        start = self.at
        self.skip_group()
        return "".join(token.text for token in self.tokens[start + 1 : self.at - 1])

    def skip_group(self) -> None:
        """Passes over a bracket and all up to the one that closes it."""
        depth = 0
        while self.tokens[self.at].kind != "end":
            text = self.take().text
            depth += (text in OPENING) - (text in CLOSING)
            if depth <= 0:
                return

    def skip_item(self) -> None:
        """Passes over an item, a statement or a field."""
        is_item = self.text() in ITEM_WORDS
        while (text := self.text()) not in CLOSING:
            if text == "#":
                self.attribute()
            elif text in OPENING:
                self.skip_group()
                if text == "{":
                    return
            else:
                self.at += 1
                if text == ";" or (text == "," and not is_item):
                    return

    def parse_items(self, module: Module, folder: Path) -> None:
        location: str | None = None
        while self.text() not in ("", "}"):
            token = self.tokens[self.at]
            if token.text == "#":
                attribute = self.attribute()
                if TEST.match(attribute):
                    self.skip_item()
                elif match := PATH_ATTRIBUTE.match(attribute):
                    location = match.group(1)
            elif token.text == "mod":
                self.parse_module(module, folder, location)
                location = None
            elif token.text == "use":
                self.parse_use(module, module.scope)
            elif token.text == "pub":
                self.at += 1
                if self.text() == "(":
                    self.skip_group()
            elif token.text == "extern" and self.text(1) == "crate":
                self.skip_item()
            elif token.text == "extern" and "{" in (self.text(1), self.text(2)):
                while self.take().text != "{":
                    pass
                self.parse_items(module, folder)
                self.at += 1
            else:
                self.parse_item(module)

    def parse_module(self, module: Module, folder: Path, location: str | None) -> None:
        self.at += 1
        name, end = self.take().text, self.take().text
        if end == "{":
            child = module.children.setdefault(name, Module(module.file, module))
            self.parse_items(child, folder / name)
            self.at += 1
        elif name != "tests":
            places = [folder / f"{name}.rs", folder / name / "mod.rs"]
            if location:
                places = [Path(os.path.normpath(module.file.parent / location))]
            for place in filter(Path.exists, places):
                inner = place.parent if place.name == "mod.rs" else place.parent / place.stem
                child = module.children[name] = Module(place, module)
                Parser(self.crate, child, inner).parse_file()

    def parse_item(self, module: Module) -> None:
        """A function, type, constant, implementation or macro, up to its end."""
        self.crate.defining.add(module.file)
        start, to_semicolon, macro = self.at, False, False
        while (text := self.text()) in MODIFIERS or text == "extern" or self.tokens[self.at].kind == "string":
            self.at += 1
        if text == "const" and self.text(1) in {"fn", "extern"} | MODIFIERS:
            self.at += 1
            return self.parse_item(module)
        if text == "macro_rules":
            module.items.add(self.text(2))
        elif text in DEFINING:
            module.items.add(self.text(2) if self.text(1) == "mut" else self.text(1))
            to_semicolon = text in ("const", "static", "type")
        else:
            macro = text != "impl"
        self.scan(module, to_semicolon)
        if macro:
            module.macro_words |= {token.text for token in self.tokens[start : self.at]}
        if self.at == start:
            self.at += 1
        return None

    def scan(self, module: Module, to_semicolon: bool) -> None:
        """Collects what is named up to the end of an item."""
        depth, scope = 0, module.scope
        while self.tokens[self.at].kind != "end":
            token, before = self.tokens[self.at], self.text(-1) if self.at else ""
            if token.text == "#" and self.text(1) in ("[", "!"):
                if TEST.match(self.attribute()):
                    self.skip_item()
                continue
            if token.text == "use" and self.text(1) != "<":
                self.parse_use(module, scope)
                continue
            if token.text == "}" and depth == 0:
                return
            if token.kind == "word" and before not in (".", "::"):
                self.parse_path(module, scope)
                continue
            self.at += 1
            if token.text in OPENING:
                depth += 1
                scope = Scope(scope) if token.text == "{" else scope
            elif token.text in CLOSING:
                depth -= 1
                scope = scope.parent or scope if token.text == "}" else scope
            if depth == 0 and (token.text == ";" or (token.text == "}" and not to_semicolon)):
                return

    def parse_path(self, module: Module, scope: Scope) -> None:
        line, path = self.tokens[self.at].line, [self.take().text]
        while self.text() == "::" and self.tokens[self.at + 1].kind == "word":
            path.append(self.text(1))
            self.at += 2
        self.crate.references.append(Reference(module, scope, Import(tuple(path)), line))

    def parse_use(self, module: Module, scope: Scope) -> None:
        self.at += 1
        self.parse_use_tree(module, scope, ())
        self.at += 1

    def parse_use_tree(self, module: Module, scope: Scope, path: Path_) -> None:
        line = self.tokens[self.at].line
        while self.text() not in (",", ";", "}", "as"):
            text = self.take().text
            if text == "{":
                while self.text() != "}":
                    self.parse_use_tree(module, scope, path)
                    self.at += self.text() == ","
                self.at += 1
                return
            if text == "::":
                path = path or ("::",)  # of another crate
            elif text == "*":
                named = Import(path or ("crate",), glob=True)
                scope.globs.append(named)
                self.crate.references.append(Reference(module, scope, named, line))
                return
            elif text != "self" or not path:
                path = (*path, text)
        name = path[-1]
        if self.text() == "as":
            name = self.text(1)
            self.at += 2
        named = Import(path)
        scope.names.setdefault(name, []).append(named)
        self.crate.references.append(Reference(module, scope, named, line))


def cycles(edges: dict[Path, dict[Path, tuple[int, str]]]) -> list[list[Path]]:
    """The strongly connected components of more than one file (Tarjan)."""
    order: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[list[Path]] = []

    def visit(file: Path) -> None:
        order[file] = low[file] = len(order)
        stack.append(file)
        for target in edges.get(file, {}):
            if target not in order:
                visit(target)
                low[file] = min(low[file], low[target])
            elif target in stack:
                low[file] = min(low[file], order[target])
        if low[file] == order[file]:
            start = stack.index(file)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for file in sorted(edges):
        if file not in order:
            visit(file)
    return sorted(found)


def roots_of(crate: Path) -> list[Path]:
    """The files with which the library and the programs of a crate begin."""
    source = crate / "src" if (crate / "src").is_dir() else crate
    roots = [source / "lib.rs", source / "main.rs", *sorted((source / "bin").glob("*.rs"))]
    return [root for root in roots if root.exists()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Finds Rust source files that import each other.")
    parser.add_argument("crates", nargs="+", type=Path, help="folders of crates")
    parser.add_argument("--edges", type=Path, help="print what this file depends on")
    options = parser.parse_args()
    count = 0
    for crate in options.crates:
        roots = roots_of(crate)
        if not roots:
            parser.error(f"{crate} has no src/lib.rs or src/main.rs")
        for root in roots:
            edges = Crate(root).edges()
            if options.edges:
                for target, (line, path) in sorted(edges.get(options.edges, {}).items()):
                    print(f"{target}: line {line} names {path}")
                continue
            for files in cycles(edges):
                count += 1
                print(f"{crate}: {len(files)} files import each other: {', '.join(map(str, files))}")
                for file in files:
                    for target, (line, path) in sorted(edges[file].items()):
                        if target in files:
                            print(f"  {file}:{line} names {path} ({target})")
    if count:
        print(f"{count} import cycles: move what both sides need into a file of its own")
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
