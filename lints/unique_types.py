#!/usr/bin/env python3
"""Refuses two public types with one name.

Rust types that are `pub` in the library crates have names of their own across the workspace. So
have the types of the facade crate, and the public Python classes, those of the extension module
included. A type of the facade and a Python class may have the name of the type that they wrap.
Every crate may have its `Error` and `Result`.

usage: unique_types.py [ROOT]
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from rust_source import tokens_of

TYPES = ("struct", "enum", "union", "trait", "type")
COMMON = {"Error", "Result"}
# Crates that wrap types of the others for their users.
FRONT_CRATES = {"python": "Python", "tensorferry": "facade"}


def public_rust_types(text: str) -> Iterator[tuple[str, int]]:
    tokens = list(tokens_of(text))
    for at, token in enumerate(tokens[:-3]):
        if token.text == "pub":
            at += 2 if tokens[at + 1].text == "unsafe" else 1
            if tokens[at].text in TYPES:
                yield tokens[at + 1].text, tokens[at + 1].line


def public_python_classes(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node.lineno


def main() -> int:
    parser = argparse.ArgumentParser(description="Refuses two public types with one name.")
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(), help="the project's root (default: here)"
    )
    root: Path = parser.parse_args().root
    definitions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in sorted(root.glob("crates/*/src/**/*.rs")):
        relative = file.relative_to(root)
        group = FRONT_CRATES.get(relative.parts[1], "Rust")
        for name, line in public_rust_types(file.read_text(encoding="utf-8")):
            definitions[group, name].append(f"{relative}:{line}")
    for file in sorted(root.glob("python/**/*.py")):
        if not any(part.startswith("_") for part in file.relative_to(root / "python").parts[:-1]):
            for name, line in public_python_classes(file.read_text(encoding="utf-8")):
                definitions["Python", name].append(f"{file.relative_to(root)}:{line}")
    shared = {
        key: found for key, found in definitions.items() if len(found) > 1 and key[1] not in COMMON
    }
    for (_, name), found in sorted(shared.items()):
        print(f"{found[0]}: public type `{name}` is also defined in {', '.join(found[1:])}")
    if shared:
        print(f"{len(shared)} names of public types are used more than once")
    return bool(shared)


if __name__ == "__main__":
    sys.exit(main())
