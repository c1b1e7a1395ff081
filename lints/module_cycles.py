#!/usr/bin/env python3
"""Proves that no two Rust source files of a crate import each other, directly or through others.

File A depends on file B if A names an item that B defines: in a `use`, or by a path in an
expression or a type. Names are resolved as the compiler does it, through imports and re-exports, to
the file that defines the item.

- A file that only declares modules and re-exports items defines nothing, so nothing depends on it.
- Naming only a module (`use crate::pool;`) is not a dependency; naming an item of it
  (`pool::take()`) is.
- A path through a type (`Error::new`, `Kind::Dense`) depends on the file that defines the type.
- Items under `#[cfg(test)]` and `#[test]`, attributes, comments and strings are ignored.

Method calls on values are not seen: a file that only calls methods of a type does not name it.

usage: module_cycles.py CRATE...              (exit status 1 if there is a cycle)
       module_cycles.py CRATE... --edges FILE (prints what one file depends on)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rust_source import Module, Names, Scope, Source

# What a path leads to: a module, the file that defines an item, or None outside of the crate.
Target = Module | Path | None
# Scopes and names whose imports are being followed.
Seen = frozenset[tuple[int, str]]


# For each file the files that it depends on, with the first line and path that says so.
Edges = dict[Path, dict[Path, tuple[int, str]]]


class Crate:
    """One crate, with what its paths mean."""

    def __init__(self, root: Path) -> None:
        self.source = Source(root)

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

    def resolve(self, module: Module, scope: Scope, path: Names, seen: Seen) -> list[Target]:
        """What a path means in a scope of a module."""
        head, *rest = path
        targets: list[Target] = []
        if head == "crate":
            targets = [self.source.root]
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
            targets = [
                target for inside in modules for target in self.member(inside, segment, seen)
            ]
        return targets

    def member(self, module: Module, name: str, seen: Seen) -> list[Target]:
        """What a name means after the path of a module."""
        if found := self.lookup(module, module.scope, name, seen):
            return found
        # Neither defined nor imported by name: a macro made it, or another crate's `*`.
        globs = [glob.path for glob in module.scope.globs]
        foreign = any(None in self.resolve(module, module.scope, path, seen) for path in globs)
        return [None if foreign and name not in module.macro_words else module.file]

    def edges(self) -> Edges:
        """For each file, the files it depends on, with the first line and path that says so."""
        edges: Edges = {}
        for reference in self.source.references:
            file, named = reference.module.file, reference.named
            for target in self.resolve(reference.module, reference.scope, named.path, frozenset()):
                if isinstance(target, Module):
                    target = target.file if named.glob else None
                if target is None or target == file or not {file, target} <= self.source.defining:
                    continue
                text = "::".join(named.path) + ("::*" if named.glob else "")
                edges.setdefault(file, {}).setdefault(target, (reference.line, text))
        return edges


def cycles(edges: Edges) -> list[list[Path]]:
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
                print(
                    f"{crate}: {len(files)} files import each other: {', '.join(map(str, files))}"
                )
                for file in files:
                    for target, (line, path) in sorted(edges[file].items()):
                        if target in files:
                            print(f"  {file}:{line} names {path} ({target})")
    if count:
        print(f"{count} import cycles: move what both sides need into a file of its own")
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
