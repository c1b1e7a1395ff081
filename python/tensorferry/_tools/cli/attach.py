"""`tensorferry attach`: what another process has published, listed or written to a file."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry import files
from tensorferry._native import Writer
from tensorferry._tools.cli import convert, notation
from tensorferry._tools.cli.terminal import Terminal, clean, table
from tensorferry.files import formats

DESCRIPTION = """\
Lists what a ticket leads to (of tensorferry publish, or of ferry.publish in Python), or writes
it to OUT, in the format of its name. Names of trees are joined by dots.

A ticket is a secret, and others see it in a command line (ps). As - it is read from the first
line of standard input. A ticket that is good once is used up, also by a list.
"""

EPILOGUE = """\
examples:
  tensorferry attach - < ticket
  tensorferry attach "$TICKET" --json
  tensorferry publish --once x.npy | tensorferry attach - y.safetensors
  tensorferry attach - model.npz --names embed.weight,head.weight < ticket
"""

# The longest text of a ticket has less.
LONGEST = 4096
# Letters of a text or bytes that are shown.
SHOWN = 60


def add(commands: Any) -> argparse.ArgumentParser:
    """Describes the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "attach",
        help="list or save what another process has published",
        description=DESCRIPTION,
        epilog=EPILOGUE,
    )
    command.add_argument("ticket", metavar="TICKET", help="its text, or - for standard input")
    command.add_argument("target", metavar="OUT", nargs="?", default=None)
    convert.choose(command, "OUT")
    convert.describe_target(command)
    command.add_argument(
        "--timeout",
        type=notation.seconds,
        metavar="SECONDS",
        help="how long to wait for the producer's answer (30)",
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Lists or writes what the ticket leads to."""
    ticket = ferry.Ticket(_read() if arguments.ticket == "-" else arguments.ticket)
    if arguments.target is not None:
        _check(arguments)
    tree = ferry.attach(ticket, "numpy", timeout=arguments.timeout)
    if arguments.target is None:
        leaves = list(_leaves(tree))
    else:
        leaves = list(files.named_leaves(tree)) if files.is_tree(tree) else [("", tree)]
    tensors = {name: leaf for name, leaf in leaves if isinstance(leaf, np.ndarray)}
    values = [(name, leaf) for name, leaf in leaves if not isinstance(leaf, np.ndarray)]
    hint = "without OUT and --names they are listed"
    names = convert.named(arguments, tensors, "the ticket", hint)
    tensors = {name: tensors[name] for name in names}
    if arguments.names is not None:
        values = []
    if arguments.target is None:
        return _list(terminal, ticket, tensors, values)
    return _save(arguments, terminal, tensors, values)


def _read() -> str:
    """The ticket on standard input; the line is enough, because whoever wrote it may go on."""
    line = sys.stdin.buffer.readline(LONGEST) if sys.stdin is not None else b""
    if not line.strip():
        raise ferry.InvalidArgumentError(
            "there is no ticket on standard input\nhint: see what the command before says"
        )
    return line.decode("ascii", "replace")


def _check(arguments: argparse.Namespace) -> None:
    """Has an OUT that cannot be written refused before a ticket that is good once is used up."""
    name = formats.default_name(arguments.target, arguments.to_format)
    format = formats.format_of(arguments.target, arguments.to_format)
    writer = Writer(
        arguments.target,
        [(name, arguments.to_dtype or "uint8", [0])],
        format="safetensors" if format == "safetensors-index" else arguments.to_format,
        compression=arguments.compression,
        dialect=arguments.dialect,
        durable=False,
    )
    writer.abandon()


def _leaves(x: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree by names, also where no file could be given these."""
    if not files.is_tree(x):
        yield place, x
        return
    for key, value in x.items() if isinstance(x, Mapping) else enumerate(x):
        yield from _leaves(value, f"{place}.{key}" if place else str(key))


def _list(
    terminal: Terminal,
    ticket: ferry.Ticket,
    tensors: dict[str, np.ndarray[Any, Any]],
    values: list[tuple[str, Any]],
) -> int:
    if terminal.json:
        terminal.answer(
            {
                "pid": ticket.pid,
                "tensors": [
                    {
                        "name": name,
                        "dtype": _dtype(tensor),
                        "shape": list(tensor.shape),
                        "bytes": tensor.nbytes,
                        "writable": tensor.flags.writeable,
                    }
                    for name, tensor in tensors.items()
                ],
                "values": [{"name": name, "value": _plain(value)} for name, value in values],
            }
        )
        return 0
    total = notation.size(sum(tensor.nbytes for tensor in tensors.values()))
    number = notation.several(len(tensors), "tensor")
    terminal.print(f"process {ticket.pid}: {number}, {total}")
    rows = [
        [
            name or "-",
            _dtype(tensor),
            "x".join(map(str, tensor.shape)) or "scalar",
            notation.size(tensor.nbytes),
            "" if tensor.flags.writeable else "read-only",
        ]
        for name, tensor in tensors.items()
    ]
    for line in table([["name", "type", "shape", "size", ""], *rows], right={3}):
        terminal.print("  " + line)
    for name, value in values:
        terminal.print(f"  {clean(name) or '-'} = {_short(value)}")
    return 0


def _save(
    arguments: argparse.Namespace,
    terminal: Terminal,
    tensors: dict[str, np.ndarray[Any, Any]],
    values: list[tuple[str, Any]],
) -> int:
    if not tensors:
        raise ferry.InvalidArgumentError(
            "the ticket leads to no tensor that a file could hold\nhint: list it: leave OUT out"
        )
    specs = {
        name: (_dtype(tensor), list(tensor.shape), tensor.nbytes)
        for name, tensor in tensors.items()
    }
    told = convert.write(arguments, terminal, specs, tensors.__getitem__, metadata={})
    if values:
        shown = ", ".join(f"{name} = {_short(value)}" for name, value in values[:8])
        more = f" and {len(values) - 8} more" if len(values) > 8 else ""
        terminal.note(f"a file holds tensors only, so these are left out: {shown}{more}")
    if terminal.json:
        told["left_out"] = [{"name": name, "value": _plain(value)} for name, value in values]
        terminal.answer(told)
    return 0


def _dtype(tensor: np.ndarray[Any, Any]) -> str:
    return str(ferry.plan(tensor, "numpy").dtype)


def _plain(value: Any) -> Any:
    """A value as JSON has it; as text where it has none."""
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and np.isfinite(value) else str(value)


def _short(value: Any) -> str:
    text = clean(repr(value))
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
