"""`tensorferry publish`: a file's tensors for other processes, until somebody ends it."""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry._tools.cli import notation
from tensorferry._tools.cli.convert import choose, opened, pieces_of
from tensorferry._tools.cli.inspect import describe
from tensorferry._tools.cli.terminal import Terminal, clean

DESCRIPTION = """\
Loads the tensors of a file into shared memory, prints a ticket for them, and lets other processes
of this user attach them (tensorferry attach, or ferry.attach in Python) until Ctrl-C, SIGTERM,
SIGHUP or the timeout: all of these end it with 0. Whoever has attached keeps the memory.

Standard output gets the ticket, one line, and is then closed. So it can be read by a pipe, and by
$(...) around a command in the background. The ticket is a secret: who has it can attach. A file
for it should be yours alone (umask 077).
"""

EPILOGUE = """\
examples:
  tensorferry publish x.npy
  TICKET=$(tensorferry publish --timeout 600 model.safetensors &)
  tensorferry publish --once x.npy | tensorferry attach - y.safetensors
  tensorferry publish pixels.bin --dtype uint8 --shape 480,640,3 --read-only --json
"""

# Seconds between two looks at who has come.
LOOK = 0.1
# For how long a consumer may read what it was given, and a little more.
READING = 31.0


class Ended(KeyboardInterrupt):
    """A signal has ended the serving."""


def add(commands: Any) -> argparse.ArgumentParser:
    """Describes the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "publish",
        help="let other processes have the tensors of a file",
        description=DESCRIPTION,
        epilog=EPILOGUE,
    )
    command.add_argument("file", metavar="FILE")
    describe(command)
    choose(command, "shared memory")
    command.add_argument(
        "--once",
        action="store_true",
        help="let one consumer in, and end when it has what it came for, which stays valid "
        "(with --timeout: 3 if nobody came)",
    )
    command.add_argument(
        "--timeout", type=notation.seconds, metavar="SECONDS", help="end after this time"
    )
    command.add_argument(
        "--read-only", action="store_true", help="give out memory that others cannot write"
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Serves the tensors."""
    if sys.stdout is None:
        raise ferry.InvalidArgumentError(
            "standard output is closed, so that nobody would get the ticket"
            "\nhint: let it go to a file or a pipe"
        )
    if sys.stderr is None:  # as some services are started
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    tree = _load(arguments, terminal)
    terminal.clear_line()
    try:
        with _signals(), _published(arguments, tree) as ticket:
            _announce(arguments, terminal, ticket, tree)
            return _serve(arguments, terminal, ticket)
    except Ended:
        terminal.clear_line()
        return 0


def _load(arguments: argparse.Namespace, terminal: Terminal) -> Any:
    """What the file holds, as `ferry.load` gives it, in shared memory."""
    file, chosen = opened(arguments.file, arguments)
    total, done = sum(tensor.bytes for tensor in chosen), 0
    tree = {}
    for tensor in chosen:
        source = file.load(tensor.name, "numpy")
        target = ferry.empty_shared(tensor.shape, arguments.to_dtype or tensor.dtype)
        # In pieces, so that Ctrl-C need not wait for all of it.
        for piece, place in zip(pieces_of(source), pieces_of(target), strict=True):
            ferry.to(piece, "numpy", dtype=arguments.to_dtype, out=place)
            done += piece.nbytes
            terminal.progress(done, total, f"bytes, {tensor.name or arguments.file}")
        tree[tensor.name] = target
    return next(iter(tree.values())) if file.is_single else tree


def _published(arguments: argparse.Namespace, tree: Any) -> ferry.Ticket:
    return ferry.publish(
        tree,
        copy=False,
        writable=False if arguments.read_only else None,
        once=arguments.once,
        timeout=arguments.timeout,
    )


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Has the signals that end a server end it in order; those that are ignored stay so."""

    def end(number: int, frame: FrameType | None) -> None:
        for other in before:  # one is enough
            signal.signal(other, signal.SIG_IGN)
        raise Ended

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(
    arguments: argparse.Namespace, terminal: Terminal, ticket: ferry.Ticket, tree: Any
) -> None:
    """Gives the ticket to whoever reads, and lets go of standard output."""
    tensors = tree if isinstance(tree, dict) else {"": tree}
    try:
        # One line also for programs: they may wait for a line of somebody who goes on.
        terminal.print(
            json.dumps(_told(arguments, ticket, tensors)) if terminal.json else str(ticket)
        )
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_standard_output()
        raise ferry.InvalidArgumentError(
            "nobody reads standard output, so that nobody has the ticket"
            "\nhint: let it go to a file or a pipe"
        ) from None
    if not sys.stdout.isatty():
        _leave_standard_output()
    if sys.stderr.isatty():
        size = notation.size(sum(tensor.nbytes for tensor in tensors.values()))
        number = notation.several(len(tensors), "tensor")
        sys.stderr.write(
            f"published {clean(arguments.file)}: {number}, {size}"
            f"{', for one consumer' * arguments.once}{', read-only' * arguments.read_only}\n"
            "to attach: tensorferry attach TICKET [OUT], or ferry.attach(TICKET) in Python\n"
        )


def _told(
    arguments: argparse.Namespace,
    ticket: ferry.Ticket,
    tensors: dict[str, np.ndarray[Any, Any]],
) -> dict[str, Any]:
    return {
        "ticket": str(ticket),
        "pid": ticket.pid,
        "once": arguments.once,
        "timeout": arguments.timeout,
        "writable": not arguments.read_only,
        "tensors": [
            {
                "name": name,
                "dtype": ferry.plan(tensor, "numpy").dtype,
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
            }
            for name, tensor in tensors.items()
        ],
    }


def _leave_standard_output() -> None:
    """Whoever reads it is not to wait for more."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _serve(arguments: argparse.Namespace, terminal: Terminal, ticket: ferry.Ticket) -> int:
    """Waits until it is over."""
    end = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    shown = None
    while not (arguments.once and ticket.consumers):
        left = LOOK if end is None else end - time.monotonic()
        # Who has begun to read the answer in time shall have all of it.
        if left <= 0 and not (arguments.once and ticket.leases and left > -READING):
            break
        if shown != ticket.leases and _in_foreground():
            shown = ticket.leases
            terminal.status(f"{notation.several(shown or 0, 'consumer')} now; Ctrl-C ends it")
        time.sleep(max(0.01, min(LOOK, left)))
    terminal.clear_line()
    ticket.withdraw()
    if arguments.once and not ticket.consumers:
        raise ferry.DeadlineError(
            f"nobody has attached within {arguments.timeout:g} s\nhint: allow more by --timeout"
        )
    return 0


def _in_foreground() -> bool:
    """Whether somebody looks at standard error: a job in the background leaves the line alone."""
    if not sys.stderr.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # a terminal that is not the one that controls this process
        return True
