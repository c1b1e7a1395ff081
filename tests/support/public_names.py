"""The public names of the package, as they are: what DESIGN.md lists is compared with this.

Run as a program it prints the rows of that table.
"""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path
from typing import Any

import tensorferry as ferry
from tensorferry._tools import cli

SETTINGS = Path(__file__).parents[2] / "crates" / "python" / "src" / "settings.rs"

#: Members that a class has from the standard library are documented there.
BUILTIN_MODULES = ("builtins", "concurrent.futures._base")


def members(kind: type) -> list[str]:
    """The public attributes and methods that a class defines itself."""
    inherited = {
        name for base in kind.__mro__ if base.__module__ in BUILTIN_MODULES for name in vars(base)
    }
    own = {name for base in kind.__mro__ for name in vars(base)}
    overridden = {name for name in vars(kind) if not name.startswith("_")}
    return sorted(name for name in own - inherited | overridden if not name.startswith("_"))


def parameters(function: Any) -> list[str]:
    """The parameters of a function by name."""
    return [str(one).partition(":")[0].partition("=")[0] for one in _signature(function)]


def _signature(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def rows() -> dict[str, tuple[str, list[str]]]:
    """Every public name with its kind, and its parameters, members or options."""
    found: dict[str, tuple[str, list[str]]] = {}
    for name in ferry.__all__:
        _add(found, name, getattr(ferry, name))
    for command, parser in _commands().items():
        options = [
            action.option_strings[-1]
            if action.option_strings
            else str(action.metavar or action.dest)
            for action in parser._actions
            if not isinstance(action, argparse._HelpAction)
        ]
        found[f"tensorferry {command}"] = ("command", options)
    for variable in re.findall(r'"(TENSORFERRY_\w+)"', SETTINGS.read_text()):
        found[variable] = ("variable", [])
    return found


def _add(found: dict[str, tuple[str, list[str]]], name: str, value: Any) -> None:
    if inspect.ismodule(value):
        found[name] = ("module", [])
        for inner in value.__all__:
            _add(found, f"{name}.{inner}", getattr(value, inner))
    elif isinstance(value, type) and issubclass(value, Exception):
        bases = [base.__name__ for base in value.__bases__ if base is not ferry.FerryError]
        found[name] = ("error", bases)
    elif isinstance(value, type):
        found[name] = ("class", members(value))
    elif callable(value):
        found[name] = ("function", parameters(value))
    else:
        found[name] = ("constant", [])


def _commands() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (
        action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(commands.choices)


if __name__ == "__main__":
    for name, (kind, parts) in rows().items():
        print(f"| `{name}` | {kind} | {' '.join(f'`{part}`' for part in parts)} | |")
