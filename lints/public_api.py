#!/usr/bin/env python3
"""Compares the public API of crates with the listing in public-api.txt of each.

A change of a public item must be seen in review: every item is one line of the listing, with its
whole signature, all features enabled. Listed are functions, types with their public fields and
variants, traits with their items, implementations of traits, constants, macros and re-exports. The
items that a crate re-exports from other crates of the workspace are listed as its own, because
their users depend on them in the same way. Not listed are hidden items, blanket implementations,
and auto traits other than Send and Sync.

The items come from rustdoc's JSON, which is unstable: its version belongs to the pinned compiler.

usage: public_api.py [--update] CRATE...
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rust_signatures import Json, Signatures, variant_of

LISTING = "public-api.txt"
FORMAT_VERSION = 57
RUSTDOC = Path(__file__).with_name("rustdoc_unstable.sh")
AUTO_TRAITS = {"Send", "Sync"}
# An implementation detail of `derive(PartialEq)`.
SKIPPED_TRAITS = {"StructuralPartialEq"}


class Crate:
    """The items of one crate."""

    def __init__(self, name: str, text: str) -> None:
        described = json.loads(text)
        if (found := described["format_version"]) != FORMAT_VERSION:
            raise SystemExit(
                f"rustdoc writes format {found}, expected {FORMAT_VERSION}: compare "
                f"rustdoc-json-types, and adapt lints/rust_signatures.py"
            )
        self.name = name
        self.index: dict[int, Json] = {int(key): item for key, item in described["index"].items()}
        self.paths: dict[int, Json] = {int(key): item for key, item in described["paths"].items()}
        self.root: int = described["root"]
        self.externals: dict[int, str] = {
            int(key): external["name"] for key, external in described["external_crates"].items()
        }

    def definition(self, item: int) -> str | None:
        """The path at which an item is defined, in any crate."""
        summary = self.paths.get(item)
        return "::".join(summary["path"]) if summary else None

    def find(self, definition: str) -> int | None:
        for item, summary in self.paths.items():
            if summary["crate_id"] == 0 and "::".join(summary["path"]) == definition:
                return item
        return None


class Workspace:
    """The crates of the workspace of a manifest, documented when they are first asked for."""

    def __init__(self, manifest: Path) -> None:
        command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
        metadata = json.loads(run([*command, "--manifest-path", str(manifest)]))
        self.manifest = manifest
        self.target = Path(metadata["target_directory"])
        self.packages = {
            target["name"]: package["name"]
            for package in metadata["packages"]
            for target in package["targets"]
            if {"lib", "rlib"} & set(target["kind"])
        }
        self.library = next(
            target["name"]
            for package in metadata["packages"]
            if Path(package["manifest_path"]) == manifest.resolve()
            for target in package["targets"]
            if {"lib", "rlib"} & set(target["kind"])
        )
        self.crates: dict[str, Crate] = {}

    def crate(self, library: str) -> Crate:
        if library not in self.crates:
            command = ["cargo", "rustdoc", "--quiet", "--lib", "--all-features"]
            command += ["--manifest-path", str(self.manifest), "-p", self.packages[library]]
            run([*command, "--", "-Z", "unstable-options", "--output-format", "json"])
            text = (self.target / "doc" / f"{library}.json").read_text(encoding="utf-8")
            self.crates[library] = Crate(library, text)
        return self.crates[library]


def run(command: list[str]) -> str:
    # Only rustdoc may use unstable options: build scripts of dependencies would see the variable.
    environment = {**os.environ, "RUSTDOC": str(RUSTDOC)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stderr}{' '.join(command[:2])} failed")
    return done.stdout


class Visible(NamedTuple):
    """An item and the public path to it."""

    crate: Crate
    item: int
    path: str


class Listing:
    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        crate = workspace.crate(workspace.library)
        self.lines: set[str] = set()
        self.visible = list(self.walk(crate, crate.root, crate.name, ()))
        # Where an item has several public paths, signatures use the shortest.
        self.names: dict[str, str] = {}
        for crate, item, path in self.visible:
            definition = crate.definition(item)
            if definition and len(path) <= len(self.names.get(definition, path)):
                self.names[definition] = path
        for visible in self.visible:
            self.add_item(visible)

    def walk(self, crate: Crate, item: int, path: str, above: tuple[int, ...]) -> Iterator[Visible]:
        """The items of a module, and those of the modules below it."""
        if item in above:  # a module that re-exports one above it
            return
        yield Visible(crate, item, path)
        if module := crate.index[item]["inner"].get("module"):
            yield from self.walk_all(crate, module["items"], path, (*above, item))

    def walk_all(
        self, crate: Crate, items: list[int], path: str, above: tuple[int, ...]
    ) -> Iterator[Visible]:
        for child in items:
            if use := crate.index[child]["inner"].get("use"):
                yield from self.walk_use(crate, use, path, above)
            else:
                yield from self.walk(crate, child, f"{path}::{crate.index[child]['name']}", above)

    def walk_use(
        self, crate: Crate, use: Json, path: str, above: tuple[int, ...]
    ) -> Iterator[Visible]:
        item: int | None = use["id"]
        name = path if use["is_glob"] else f"{path}::{use['name']}"
        if item is not None and item not in crate.index:
            definition = crate.definition(item)
            library = crate.externals.get(crate.paths[item]["crate_id"]) if definition else None
            item = None
            if definition and library and library in self.workspace.packages:
                crate = self.workspace.crate(library)
                item = crate.find(definition)
        if item is None:
            self.lines.add(f"pub use {name} = {use['source']}{'::*' * use['is_glob']}")
        elif use["is_glob"]:
            inner = crate.index[item]["inner"]
            items = inner["module"]["items"] if "module" in inner else inner["enum"]["variants"]
            yield from self.walk_all(crate, items, path, (*above, item))
        else:
            yield from self.walk(crate, item, name, above)

    def signatures(self, crate: Crate) -> Signatures:
        def name_of(item: int, written: str) -> str:
            definition = crate.definition(item) or written
            return self.names.get(definition, definition)

        return Signatures(name_of)

    def add(self, attributes: list[Json | str], text: str) -> None:
        self.lines.add("".join(f"{shown} " for shown in shown_attributes(attributes)) + text)

    def add_item(self, visible: Visible) -> None:
        crate, number, path = visible
        item, format_ = crate.index[number], self.signatures(crate)
        kind, value = variant_of(item["inner"])
        attributes = item["attrs"] + ["deprecated"] * bool(item["deprecation"])
        generics, where = format_.generics(value["generics"]) if "generics" in value else ("", "")
        match kind:
            case "module":
                self.add(attributes, f"pub mod {path}")
            case "struct" | "union" | "enum":
                unit = ";" * (value.get("kind") == "unit")
                self.add(attributes, f"pub {kind} {path}{generics}{where}{unit}")
                self.add_contents(crate, kind, value, path)
                self.add_implementations(crate, value["impls"])
            case "trait":
                bounds = f": {format_.bounds(value['bounds'])}" if value["bounds"] else ""
                words = "unsafe " * value["is_unsafe"] + "auto " * value["is_auto"]
                note = "" if value["is_dyn_compatible"] else " (not dyn compatible)"
                self.add(attributes, f"pub {words}trait {path}{generics}{bounds}{where}{note}")
                for child in value["items"]:
                    self.add_associated(crate, child, path)
                self.add_implementations(crate, value["implementations"])
            case "function":
                self.add(attributes, f"pub {format_.function(path, value)}")
            case "variant":
                self.add_variant(crate, number, path)
            case "type_alias":
                text = f"pub type {path}{generics}{where} = {format_.type(value['type'])}"
                self.add(attributes, text)
            case "constant":
                text = f"pub const {path}: {format_.type(value['type'])}"
                self.add(
                    attributes, f"{text} = {value['const']['value'] or value['const']['expr']}"
                )
            case "static":
                words = "mut " * value["is_mutable"]
                self.add(attributes, f"pub static {words}{path}: {format_.type(value['type'])}")
            case "macro":
                rules = " ".join(value.split())
                self.add(attributes, f"pub macro {path}! = {rules}")
            case "proc_macro":
                self.add(attributes, f"pub macro {path}! ({value['kind']})")
            case "trait_alias" | "extern_type" | "primitive" | "keyword":
                self.add(attributes, f"pub {kind} {path}{generics}{where}")
            case _:
                raise ValueError(f"unknown item in rustdoc's JSON: {kind}")

    def add_contents(self, crate: Crate, kind: str, value: Json, path: str) -> None:
        """Public fields, and variants. A type with other fields cannot be constructed by users."""
        if kind == "enum":
            for variant in value["variants"]:
                self.add_variant(crate, variant, f"{path}::{crate.index[variant]['name']}")
            return
        fields, hidden = value.get("fields"), value.get("has_stripped_fields")
        if kind == "struct" and value["kind"] != "unit":
            form, contents = variant_of(value["kind"])
            fields = contents if form == "tuple" else contents["fields"]
            hidden = None in contents if form == "tuple" else contents["has_stripped_fields"]
        public = [field for field in fields or [] if field is not None]
        for field in public:
            self.add_field(crate, field, path)
        if public and hidden:
            self.lines.add(f"pub field {path}::(private fields)")

    def add_variant(self, crate: Crate, number: int, path: str) -> None:
        item = crate.index[number]
        variant = item["inner"]["variant"]
        discriminant = variant["discriminant"]
        text = f" = {discriminant['value']}" if discriminant else ""
        form, contents = variant_of(variant["kind"])
        form = {"plain": "", "tuple": " (..)", "struct": " {..}"}[form]
        self.add(item["attrs"], f"pub variant {path}{form}{text}")
        fields = contents["fields"] if isinstance(contents, dict) else contents
        for field in fields or []:
            if field is not None:
                self.add_field(crate, field, path)

    def add_field(self, crate: Crate, number: int, path: str) -> None:
        field = crate.index[number]
        kind = self.signatures(crate).type(field["inner"]["struct_field"])
        self.add(field["attrs"], f"pub field {path}::{field['name']}: {kind}")

    def add_associated(self, crate: Crate, number: int, path: str) -> None:
        """An item of a trait, or of an implementation without a trait."""
        item, format_ = crate.index[number], self.signatures(crate)
        kind, value = variant_of(item["inner"])
        name = f"{path}::{item['name']}"
        attributes = item["attrs"] + ["deprecated"] * bool(item["deprecation"])
        is_required = item["visibility"] == "default"  # items of traits have no visibility
        match kind:
            case "function":
                note = " { .. }" if is_required and value["has_body"] else ""
                self.add(attributes, f"pub {format_.function(name, value)}{note}")
            case "assoc_const":
                text = f"pub const {name}: {format_.type(value['type'])}"
                self.add(attributes, text + (f" = {value['value']}" if value["value"] else ""))
            case "assoc_type":
                generics, where = format_.generics(value["generics"])
                bounds = f": {format_.bounds(value['bounds'])}" if value["bounds"] else ""
                default = f" = {format_.type(value['type'])}" if value["type"] else ""
                self.add(attributes, f"pub type {name}{generics}{bounds}{where}{default}")
            case _:
                raise ValueError(f"unknown associated item in rustdoc's JSON: {kind}")

    def add_implementations(self, crate: Crate, numbers: list[int]) -> None:
        format_ = self.signatures(crate)
        for number in numbers:
            if number not in crate.index:
                continue
            value = crate.index[number]["inner"]["impl"]
            implemented = format_.type(value["for"])
            if value["blanket_impl"]:
                continue
            if not value["trait"]:
                generics, where = format_.generics(value["generics"])
                prefix = f"impl{generics} {implemented}{where}" if where else implemented
                for child in value["items"]:
                    self.add_associated(crate, child, prefix)
            elif self.is_listed(crate, value):
                generics, where = format_.generics(value["generics"])
                trait = "!" * value["is_negative"] + format_.path(value["trait"])
                header = f"impl{generics} {trait} for {implemented}{where}"
                self.lines.add(header)
                for child in value["items"]:
                    if kind := crate.index[child]["inner"].get("assoc_type"):
                        name = crate.index[child]["name"]
                        self.lines.add(f"{header} {{ type {name} = {format_.type(kind['type'])} }}")

    def is_listed(self, crate: Crate, value: Json) -> bool:
        trait = value["trait"]
        name = trait["path"].rsplit("::", 1)[-1]
        if name in SKIPPED_TRAITS or (value["is_synthetic"] and name not in AUTO_TRAITS):
            return False
        definition = crate.definition(trait["id"])
        is_own = crate.paths.get(trait["id"], {"crate_id": 0})["crate_id"] == 0
        # A trait that cannot be named, such as the one that seals another.
        return not is_own or definition in self.names


def shown_attributes(attributes: list[Json | str]) -> Iterator[str]:
    for attribute in attributes:
        name, value = variant_of(attribute)
        if name in ("non_exhaustive", "deprecated", "must_use"):
            yield f"#[{name}]"
        elif name == "repr":
            kind = {"rust": "", "c": "C"}.get(value["kind"], value["kind"])
            words = [kind, value["int"] or ""]
            words += [f"align({value['align']})" if value["align"] else ""]
            words += [f"packed({value['packed']})" if value["packed"] else ""]
            yield f"#[repr({', '.join(word for word in words if word)})]"


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares the public API of crates with listings.")
    parser.add_argument("crates", nargs="+", type=Path)
    parser.add_argument("--update", action="store_true", help=f"write {LISTING} of each crate")
    arguments = parser.parse_args()
    changed = 0
    for crate in arguments.crates:
        listing = crate / LISTING
        found = Listing(Workspace(crate / "Cargo.toml")).lines
        if arguments.update:
            listing.write_text("".join(f"{line}\n" for line in sorted(found)), encoding="utf-8")
            continue
        listed = (
            set(listing.read_text(encoding="utf-8").splitlines()) if listing.exists() else set()
        )
        for line in sorted(listed - found):
            print(f"{listing}: removed: {line}")
        for line in sorted(found - listed):
            print(f"{listing}: added: {line}")
        changed += len(listed ^ found)
    if changed:
        crates = " ".join(map(str, arguments.crates))
        print(
            f"{changed} lines differ: undo the change of the public API, or run "
            f"lints/public_api.py --update {crates} and commit the listing"
        )
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
