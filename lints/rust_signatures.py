"""Formats the types, generics and functions of rustdoc's JSON as Rust text.

The keys are those of `rustdoc_json_types::Type` and its neighbours. A key that is not known here is
an error, so that a later format is not listed in part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
BOUND_MODIFIERS = {"none": "", "maybe": "?", "maybe_const": "~const "}


def variant_of(described: Json | str) -> tuple[str, Any]:
    """The name and the contents of a Rust enum's value; None for a variant without contents."""
    if isinstance(described, str):
        return described, None
    [(name, contents)] = described.items()
    return name, contents


class Signatures:
    """Formats what refers to items by their ids; `name_of` gives the path of an item."""

    def __init__(self, name_of: Callable[[int, str], str]) -> None:
        self.name_of = name_of

    def type(self, described: Json | str) -> str:
        kind, value = variant_of(described)
        match kind:
            case "infer":
                return "_"
            case "resolved_path":
                return self.path(value)
            case "dyn_trait":
                bounds = [self.poly_trait(bound) for bound in value["traits"]]
                return f"(dyn {' + '.join(bounds + [value['lifetime']] * bool(value['lifetime']))})"
            case "generic":
                return str(value)
            case "primitive":
                return "!" if value == "never" else str(value)
            case "function_pointer":
                quantifier = self.quantifier(value["generic_params"])
                return f"{quantifier}{header(value['header'])}fn{self.arguments(value['sig'])}"
            case "tuple":
                items = [self.type(item) for item in value]
                return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
            case "slice":
                return f"[{self.type(value)}]"
            case "array":
                return f"[{self.type(value['type'])}; {value['len']}]"
            case "impl_trait":
                return f"impl {self.bounds(value)}"
            case "raw_pointer":
                return f"*{'mut' if value['is_mutable'] else 'const'} {self.type(value['type'])}"
            case "borrowed_ref":
                lifetime = f"{value['lifetime']} " if value["lifetime"] else ""
                return f"&{lifetime}{'mut ' * value['is_mutable']}{self.type(value['type'])}"
            case "qualified_path":
                base = self.type(value["self_type"])
                if value["trait"] and value["trait"]["path"]:
                    base = f"<{base} as {self.path(value['trait'])}>"
                return f"{base}::{value['name']}{self.generic_arguments(value['args'])}"
        raise ValueError(f"unknown type in rustdoc's JSON: {kind}")

    def path(self, value: Json) -> str:
        return self.name_of(value["id"], value["path"]) + self.generic_arguments(value["args"])

    def generic_arguments(self, given: Json | str | None) -> str:
        if not given:
            return ""
        kind, value = variant_of(given)
        if kind == "return_type_notation":
            return "(..)"
        if kind == "parenthesized":
            inputs = ", ".join(self.type(item) for item in value["inputs"])
            return f"({inputs}){self.returns(value['output'])}"
        items = [self.generic_argument(argument) for argument in value["args"]]
        for constraint in value["constraints"]:
            name = constraint["name"] + self.generic_arguments(constraint["args"])
            binding, bound = variant_of(constraint["binding"])
            if binding == "equality":
                items.append(f"{name} = {self.generic_argument(bound)}")
            else:
                items.append(f"{name}: {self.bounds(bound)}")
        return f"<{', '.join(items)}>" if items else ""

    def generic_argument(self, given: Json | str) -> str:
        kind, value = variant_of(given)
        if kind == "infer":
            return "_"
        if kind in ("const", "constant"):
            return str(value["value"] or value["expr"])
        return str(value) if kind == "lifetime" else self.type(value)

    def bounds(self, bounds: list[Json]) -> str:
        return " + ".join(self.bound(bound) for bound in bounds)

    def bound(self, bound: Json) -> str:
        kind, value = variant_of(bound)
        if kind == "trait_bound":
            return BOUND_MODIFIERS[value["modifier"]] + self.poly_trait(value)
        if kind == "use":
            return f"use<{', '.join(str(next(iter(item.values()))) for item in value)}>"
        return str(value)

    def poly_trait(self, value: Json) -> str:
        return self.quantifier(value["generic_params"]) + self.path(value["trait"])

    def quantifier(self, parameters: list[Json]) -> str:
        names = ", ".join(parameter["name"] for parameter in parameters)
        return f"for<{names}> " if names else ""

    def generics(self, generics: Json) -> tuple[str, str]:
        """The parameters in angle brackets, and the where clause."""
        parameters = []
        for parameter in generics["params"]:
            kind, value = variant_of(parameter["kind"])
            text, default = parameter["name"], None
            match kind:
                case "lifetime":
                    text += f": {' + '.join(value['outlives'])}" if value["outlives"] else ""
                case "type":
                    if value["is_synthetic"]:  # `impl Trait`, shown as the type of the argument
                        continue
                    text += f": {self.bounds(value['bounds'])}" if value["bounds"] else ""
                    default = self.type(value["default"]) if value["default"] else None
                case "const":
                    text, default = f"const {text}: {self.type(value['type'])}", value["default"]
            parameters.append(text if default is None else f"{text} = {default}")
        clauses = [self.predicate(predicate) for predicate in generics["where_predicates"]]
        return (
            f"<{', '.join(parameters)}>" if parameters else "",
            f" where {', '.join(clauses)}" if clauses else "",
        )

    def predicate(self, predicate: Json) -> str:
        kind, value = variant_of(predicate)
        match kind:
            case "bound_predicate":
                quantifier = self.quantifier(value["generic_params"])
                return f"{quantifier}{self.type(value['type'])}: {self.bounds(value['bounds'])}"
            case "lifetime_predicate":
                return f"{value['lifetime']}: {' + '.join(value['outlives'])}"
            case "eq_predicate":
                return f"{self.type(value['lhs'])} = {self.generic_argument(value['rhs'])}"
        raise ValueError(f"unknown predicate in rustdoc's JSON: {kind}")

    def arguments(self, signature: Json) -> str:
        items = [f"{name}: {self.type(value)}" for name, value in signature["inputs"]]
        items += ["..."] * signature["is_c_variadic"]
        return f"({', '.join(items)}){self.returns(signature['output'])}"

    def returns(self, output: Json | None) -> str:
        return f" -> {self.type(output)}" if output else ""

    def function(self, name: str, function: Json) -> str:
        generics, where = self.generics(function["generics"])
        words, arguments = header(function["header"]), self.arguments(function["sig"])
        return f"{words}fn {name}{generics}{arguments}{where}"


def header(header: Json) -> str:
    words = [word for word in ("const", "async", "unsafe") if header[f"is_{word}"]]
    name, value = variant_of(header["abi"])
    if name != "Rust":
        unwind = "-unwind" if isinstance(value, dict) and value.get("unwind") else ""
        words.append(f'extern "{value if name == "Other" else name}{unwind}"')
    return "".join(f"{word} " for word in words)
