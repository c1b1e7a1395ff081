"""Reads Rust source files for the lints: tokens, modules, what they define and what they name.

This is not a parser of the language. It knows items, blocks, paths, `use` and attributes, which is
all that the lints need, and expects files that compile.
"""

from __future__ import annotations

import os
import re
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
Names = tuple[str, ...]  # the segments of a path


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int


@dataclass
class Import:
    path: Names
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


class Source:
    """The modules of one crate, the files that define something, and what is named where."""

    def __init__(self, root: Path) -> None:
        self.defining: set[Path] = set()
        self.references: list[Reference] = []
        self.root = Module(root, None)
        Parser(self, self.root, root.parent).parse_file()


class Parser:
    """Reads one file into a module and the modules in it."""

    def __init__(self, source: Source, module: Module, folder: Path) -> None:
        self.source, self.module, self.folder, self.at = source, module, folder, 0
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
            candidates = [folder / f"{name}.rs", folder / name / "mod.rs"]
            if location:
                candidates = [Path(os.path.normpath(module.file.parent / location))]
            for file in filter(Path.exists, candidates):
                inner = file.parent if file.name == "mod.rs" else file.parent / file.stem
                child = module.children[name] = Module(file, module)
                Parser(self.source, child, inner).parse_file()

    def parse_item(self, module: Module) -> None:
        """A function, type, constant, implementation or macro, up to its end."""
        self.source.defining.add(module.file)
        start, to_semicolon, macro = self.at, False, False
        while (
            (text := self.text()) in MODIFIERS
            or text == "extern"
            or self.tokens[self.at].kind == "string"
        ):
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
        self.source.references.append(Reference(module, scope, Import(tuple(path)), line))

    def parse_use(self, module: Module, scope: Scope) -> None:
        self.at += 1
        self.parse_use_tree(module, scope, ())
        self.at += 1

    def parse_use_tree(self, module: Module, scope: Scope, path: Names) -> None:
        line = self.tokens[self.at].line
        while self.text() not in ("", ",", ";", "}", "as"):
            text = self.take().text
            if text == "{":
                while self.text() != "}":
                    self.parse_use_tree(module, scope, path)
                    self.at += self.text() == ","
                self.at += 1
                return
            if text == "$":  # `$crate` in a macro
                continue
            if text == "::":
                path = path or ("::",)  # of another crate
            elif text == "*":
                named = Import(path or ("crate",), glob=True)
                scope.globs.append(named)
                self.source.references.append(Reference(module, scope, named, line))
                return
            elif text != "self" or not path:
                path = (*path, text)
        name = path[-1]
        if self.text() == "as":
            name = self.text(1)
            self.at += 2
        named = Import(path)
        scope.names.setdefault(name, []).append(named)
        self.source.references.append(Reference(module, scope, named, line))
