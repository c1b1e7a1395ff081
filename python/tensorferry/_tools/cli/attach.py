"""`tensorferry attach`: lists the tensors of another process, or writes them to a file."""

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
Attaches a ticket (of tensorferry publish, or of ferry.publish in Python). Lists its tensors, or
writes them to OUT, in the format of OUT's name. Names of nested tensors are joined by dots.

A ticket is a secret, and other users see command lines (ps). With - it is read from the first
line of standard input. A ticket for one consumer is used up by a list, too.
"""

EPILOGUE = """\
examples:
  tensorferry attach - < ticket
  tensorferry attach "$TICKET" --json
  tensorferry publish --once x.npy | tensorferry attach - y.safetensors
  tensorferry attach - model.npz --names embed.weight,head.weight < ticket
"""

# Longer than any ticket.
MAX_TICKET_BYTES = 4096
MAX_VALUE_CHARS = 60


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "attach",
        help="list or save the tensors of another process",
        description=DESCRIPTION,
        epilog=EPILOGUE,
    )
    command.add_argument("ticket", metavar="TICKET", help="the ticket, or - for standard input")
    command.add_argument(
        "target",
        metavar="OUT",
        nargs="?",
        default=None,
        help="the file to write (a list is printed)",
    )
    convert.add_selection(command, "OUT")
    convert.add_target_options(command)
    command.add_argument(
        "--timeout",
        type=notation.seconds,
        metavar="SECONDS",
        help="how long to wait for the producer (30)",
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Lists or writes the tensors of the ticket."""
    ticket = ferry.Ticket(_read_ticket() if arguments.ticket == "-" else arguments.ticket)
    if arguments.target is not None:
        _check_target(arguments)
    tree = ferry.attach(ticket, "numpy", timeout=arguments.timeout)
    if arguments.target is None:
        leaves = list(_named_leaves(tree))
    else:
        leaves = list(files.named_leaves(tree)) if files.is_tree(tree) else [("", tree)]
    tensors = {name: leaf for name, leaf in leaves if isinstance(leaf, np.ndarray)}
    values = [(name, leaf) for name, leaf in leaves if not isinstance(leaf, np.ndarray)]
    hint = "leave out OUT and --names to list them"
    names = convert.select_names(arguments, tensors, "the ticket", hint)
    tensors = {name: tensors[name] for name in names}
    if arguments.names is not None:
        values = []
    if arguments.target is None:
        return _list(terminal, ticket, tensors, values)
    return _save(arguments, terminal, tensors, values)


def _read_ticket() -> str:
    """The ticket on standard input. Reads one line, because the producer keeps the pipe open."""
    line = sys.stdin.buffer.readline(MAX_TICKET_BYTES) if sys.stdin is not None else b""
    if not line.strip():
        raise ferry.InvalidArgumentError(
            "standard input is empty, and a ticket was expected\nhint: check the producer's errors"
        )
    return line.decode("ascii", "replace")


def _check_target(arguments: argparse.Namespace) -> None:
    """Refuses an OUT that cannot be written, before a ticket for one consumer is used up."""
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


def _named_leaves(x: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree by name, including names that a file could not have."""
    if not files.is_tree(x):
        yield prefix, x
        return
    for key, value in x.items() if isinstance(x, Mapping) else enumerate(x):
        yield from _named_leaves(value, f"{prefix}.{key}" if prefix else str(key))


def _list(
    terminal: Terminal,
    ticket: ferry.Ticket,
    tensors: dict[str, np.ndarray[Any, Any]],
    values: list[tuple[str, Any]],
) -> int:
    if terminal.json:
        terminal.print_json(
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
                "values": [{"name": name, "value": _to_json(value)} for name, value in values],
            }
        )
        return 0
    total = notation.size(sum(tensor.nbytes for tensor in tensors.values()))
    number = notation.count(len(tensors), "tensor")
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
        terminal.print(f"  {clean(name) or '-'} = {_abbreviate(value)}")
    return 0


def _save(
    arguments: argparse.Namespace,
    terminal: Terminal,
    tensors: dict[str, np.ndarray[Any, Any]],
    values: list[tuple[str, Any]],
) -> int:
    if not tensors:
        raise ferry.InvalidArgumentError(
            "the ticket has no tensors to save\nhint: leave OUT out to list it"
        )
    specs = {
        name: (_dtype(tensor), list(tensor.shape), tensor.nbytes)
        for name, tensor in tensors.items()
    }
    summary = convert.write(arguments, terminal, specs, tensors.__getitem__, metadata={})
    if values:
        shown = ", ".join(f"{name} = {_abbreviate(value)}" for name, value in values[:8])
        more = f" and {len(values) - 8} more" if len(values) > 8 else ""
        terminal.note(f"files hold tensors only; left out: {shown}{more}")
    if terminal.json:
        summary["left_out"] = [{"name": name, "value": _to_json(value)} for name, value in values]
        terminal.print_json(summary)
    return 0


def _dtype(tensor: np.ndarray[Any, Any]) -> str:
    return str(ferry.plan(tensor, "numpy").dtype)


def _to_json(value: Any) -> Any:
    """A value that JSON supports; other values as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and np.isfinite(value) else str(value)


def _abbreviate(value: Any) -> str:
    text = clean(repr(value))
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 3] + "..."
