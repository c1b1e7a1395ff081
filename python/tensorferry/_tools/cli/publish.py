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
from tensorferry._tools.cli.convert import add_selection, open_file, split_blocks
from tensorferry._tools.cli.inspect import add_source_options
from tensorferry._tools.cli.terminal import Terminal, clean

DESCRIPTION = """\
Loads the tensors of a file into shared memory and prints a ticket for them. Other processes of
this user can attach them (tensorferry attach, or ferry.attach in Python) until Ctrl-C, SIGTERM,
SIGHUP or the timeout, which all exit with 0. Consumers keep the memory that they have attached.

The ticket is one line on standard output, which is then closed, so that a pipe, or $(...) around a
background command, can read it. The ticket is a secret: any process that has it can attach. Keep a
file with a ticket private (umask 077).
"""

EPILOGUE = """\
examples:
  tensorferry publish x.npy
  TICKET=$(tensorferry publish --timeout 600 model.safetensors &)
  tensorferry publish --once x.npy | tensorferry attach - y.safetensors
  tensorferry publish pixels.bin --dtype uint8 --shape 480,640,3 --read-only --json
"""

# How often the number of consumers is read.
POLL_SECONDS = 0.1
# The share protocol gives a consumer 30 seconds to read its answer.
READ_SECONDS = 31.0


class Stopped(KeyboardInterrupt):
    """A signal has stopped the server."""


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "publish",
        help="share the tensors of a file with other processes",
        description=DESCRIPTION,
        epilog=EPILOGUE,
    )
    command.add_argument("file", metavar="FILE", help="the file")
    add_source_options(command)
    add_selection(command, "shared memory")
    command.add_argument(
        "--once",
        action="store_true",
        help="accept one consumer, and exit when it has attached "
        "(with --timeout: exit code 3 if no consumer attaches)",
    )
    command.add_argument(
        "--timeout", type=notation.seconds, metavar="SECONDS", help="exit after this time"
    )
    command.add_argument(
        "--read-only", action="store_true", help="share memory that consumers cannot write"
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Serves the tensors."""
    if sys.stdout is None:
        raise ferry.InvalidArgumentError(
            "standard output is closed, and the ticket is printed there"
            "\nhint: redirect it to a file or a pipe"
        )
    if sys.stderr is None:  # some service managers close it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    tree = _load(arguments, terminal)
    terminal.clear_line()
    try:
        with _signals(), _published(arguments, tree) as ticket:
            _announce(arguments, terminal, ticket, tree)
            return _serve(arguments, terminal, ticket)
    except Stopped:
        terminal.clear_line()
        return 0


def _load(arguments: argparse.Namespace, terminal: Terminal) -> Any:
    """The tensors of the file in shared memory, structured like the result of `ferry.load`."""
    file, chosen = open_file(arguments.file, arguments)
    total, done = sum(tensor.bytes for tensor in chosen), 0
    tree = {}
    for tensor in chosen:
        source = file.load(tensor.name, "numpy")
        target = ferry.empty_shared(tensor.shape, arguments.to_dtype or tensor.dtype)
        # In blocks, so that Ctrl-C is handled between them.
        for block, out in zip(split_blocks(source), split_blocks(target), strict=True):
            ferry.to(block, "numpy", dtype=arguments.to_dtype, out=out)
            done += block.nbytes
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
    """Makes termination signals raise Stopped; ignored signals stay ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        for other in before:  # ignore further signals
            signal.signal(other, signal.SIG_IGN)
        raise Stopped

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(
    arguments: argparse.Namespace, terminal: Terminal, ticket: ferry.Ticket, tree: Any
) -> None:
    """Prints the ticket and closes standard output."""
    tensors = tree if isinstance(tree, dict) else {"": tree}
    try:
        # JSON is one line, too: the reader waits for a line, not for the end of the stream.
        terminal.print(
            json.dumps(_to_dict(arguments, ticket, tensors)) if terminal.json else str(ticket)
        )
        sys.stdout.flush()
    except BrokenPipeError:
        _close_standard_output()
        raise ferry.InvalidArgumentError(
            "the reader of standard output has closed it before the ticket was printed"
            "\nhint: redirect it to a file or a pipe"
        ) from None
    if not sys.stdout.isatty():
        _close_standard_output()
    if sys.stderr.isatty():
        size = notation.size(sum(tensor.nbytes for tensor in tensors.values()))
        number = notation.count(len(tensors), "tensor")
        sys.stderr.write(
            f"published {clean(arguments.file)}: {number}, {size}"
            f"{', for one consumer' * arguments.once}{', read-only' * arguments.read_only}\n"
            "to attach: tensorferry attach TICKET [OUT], or ferry.attach(TICKET) in Python\n"
        )


def _to_dict(
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


def _close_standard_output() -> None:
    """Ends the stream for its reader; later writes go to /dev/null."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _serve(arguments: argparse.Namespace, terminal: Terminal, ticket: ferry.Ticket) -> int:
    """Waits for consumers until the server ends."""
    deadline = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    shown = None
    while not (arguments.once and ticket.consumers):
        left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
        # A consumer that has connected before the deadline may finish reading its answer.
        if left <= 0 and not (arguments.once and ticket.leases and left > -READ_SECONDS):
            break
        if shown != ticket.leases and _in_foreground():
            shown = ticket.leases
            terminal.status(f"{notation.count(shown or 0, 'consumer')}; Ctrl-C to stop")
        time.sleep(max(0.01, min(POLL_SECONDS, left)))
    terminal.clear_line()
    ticket.withdraw()
    if arguments.once and not ticket.consumers:
        raise ferry.DeadlineError(
            f"no consumer attached within {arguments.timeout:g} s\nhint: increase --timeout"
        )
    return 0


def _in_foreground() -> bool:
    """Whether this is the foreground job of a terminal; background jobs print no status line."""
    if not sys.stderr.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # not the controlling terminal of this process
        return True
