"""`tensorferry completion`: completion scripts for shells."""

import argparse
import shlex
from typing import Any

from tensorferry._tools.cli.terminal import Terminal

EPILOGUE = """\
examples:
  source <(tensorferry completion bash)
  tensorferry completion zsh > "${fpath[1]}/_tensorferry"
  tensorferry completion fish > ~/.config/fish/completions/tensorferry.fish
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Prints a completion script for a shell.",
        epilog=EPILOGUE,
    )
    command.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Prints the script, which is generated from the parser."""
    commands = _commands(arguments.parser)
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    terminal.print(write(commands))
    return 0


# For each command: its help; its options with the choices of their argument, or None for flags; and
# the choices of each positional argument.
Commands = dict[str, tuple[str, dict[str, list[str] | None], list[list[str]]]]


def _commands(top: argparse.ArgumentParser) -> Commands:
    (choices,) = (
        action for action in top._actions if isinstance(action, argparse._SubParsersAction)
    )
    helps = {choice.dest: choice.help or "" for choice in choices._choices_actions}
    commands: Commands = {}
    for name, command in choices.choices.items():
        options: dict[str, list[str] | None] = {}
        positionals: list[list[str]] = []
        for action in command._actions:
            choices_of = [str(choice) for choice in action.choices or ()]
            for option in action.option_strings:
                # Without choices the shell completes files.
                options[option] = None if action.nargs == 0 else choices_of
            if not action.option_strings:
                positionals.append(choices_of)
        commands[name] = (helps.get(name, ""), options, positionals)
    return commands


def _bash(commands: Commands) -> str:
    lines = [
        "_tensorferry() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        "  COMPREPLY=()",
        "  if [ $COMP_CWORD -eq 1 ]; then",
        f'    COMPREPLY=($(compgen -W "{" ".join(commands)} --help --version" -- "$word")); return',
        "  fi",
        '  case "${COMP_WORDS[1]}" in',
    ]
    for name, (_, options, positionals) in commands.items():
        lines += [f"  {name})", '    case "$before" in']
        for option, words in options.items():
            if words is not None:
                offered = f'compgen -W "{" ".join(words)}" -- "$word"'
                lines.append(f"    {option}) COMPREPLY=($({offered})); return;;")
        words = sorted({word for words in positionals for word in words})
        offered = " ".join([*words, *options])
        lines += ["    esac", f'    COMPREPLY=($(compgen -W "{offered}" -- "$word"));;']
    return "\n".join([*lines, "  esac", "}", "complete -o default -F _tensorferry tensorferry"])


def _zsh(commands: Commands) -> str:
    lines = ["#compdef tensorferry", "_tensorferry() {", "  if (( CURRENT == 2 )); then"]
    described = " ".join(shlex.quote(f"{name}:{text}") for name, (text, _, _) in commands.items())
    lines += [
        f"    local -a commands=({described})",
        "    _describe command commands; return",
        "  fi",
    ]
    lines.append("  case $words[2] in")
    for name, (_, options, positionals) in commands.items():
        lines += [f"  {name})", "    case $words[CURRENT-1] in"]
        lines += [
            f"    {option}) compadd -- {' '.join(words)}; return;;"
            for option, words in options.items()
            if words
        ]
        words = sorted({word for words in positionals for word in words})
        lines += ["    esac", f"    compadd -- {' '.join([*words, *options])}; _files;;"]
    return "\n".join([*lines, "  esac", "}", "compdef _tensorferry tensorferry"])


def _fish(commands: Commands) -> str:
    lines = []
    for name, (text, options, positionals) in commands.items():
        lines.append(
            f"complete -c tensorferry -n __fish_use_subcommand -a {name} -d {shlex.quote(text)}"
        )
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for option, words in options.items():
            if option.startswith("--"):
                more = f" -xa {shlex.quote(' '.join(words))}" if words else ""
                lines.append(f"complete -c tensorferry {seen} -l {option[2:]}{more}")
        words = sorted({word for words in positionals for word in words})
        if words:
            lines.append(f"complete -c tensorferry {seen} -fa {shlex.quote(' '.join(words))}")
    return "\n".join(lines)
