"""The argument parser of the command line: its errors are one line and a hint, as all others are.

An error of argparse quotes values as Python literals, lists all choices in the fact, and refers to
the top-level help. This parser states the fact, suggests what was meant, and names the help of the
command at hand.
"""

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from tensorferry._tools.cli.notation import quote
from tensorferry._tools.cli.terminal import Terminal

MISSING = "the following arguments are required: "


class Parser(argparse.ArgumentParser):
    """A parser that prints an error and its hint, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Prints an error and exits with 2."""
        fact, _, hint = message.partition("\nhint: ")
        if fact.startswith(MISSING):
            names = fact.removeprefix(MISSING)
            fact = f"missing argument{'s' * (',' in names)}: {names}"
            hint = f"write {self.synopsis}, or run {self.prog} --help"
        Terminal().error(fact, hint=hint or f"run {self.prog} --help")
        raise SystemExit(2)

    @property
    def synopsis(self) -> str:
        """The command with its required arguments."""
        names = (
            str(action.metavar or action.dest)
            for action in self._get_positional_actions()
            if action.nargs != argparse.OPTIONAL
        )
        return " ".join((self.prog, *names))

    @property
    def options(self) -> frozenset[str]:
        """The options of the command."""
        return frozenset(option for action in self._actions for option in action.option_strings)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses arguments; unknown ones are an error of this parser, not of the parser above."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            first = unknown[0]
            if not first.startswith("-"):
                self.error(f"unexpected argument {quote(first)}")
            name = first.partition("=")[0]
            self.error(f"unknown option {quote(name)}{_did_you_mean(name, self.options)}")
        return found, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuses a value that is not one of the choices."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        hint = _did_you_mean(str(value), choices) or f"\nhint: write one of {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"unknown command {quote(str(value))}{hint}")
        raise argparse.ArgumentError(action, f"unknown value {quote(str(value))}{hint}")


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the closest known word, if one is close."""
    # Only words of the same kind are suggested: `-x` is not a misspelt `-h`.
    similar = [one for one in known if re.match("-*", one)[0] == re.match("-*", word)[0]]  # type: ignore[index]
    close = difflib.get_close_matches(word, similar, n=1) if len(word.strip("-")) > 1 else []
    return f"\nhint: did you mean {close[0]}?" if close else ""
