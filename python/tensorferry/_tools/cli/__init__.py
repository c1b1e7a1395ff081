"""The command `tensorferry`: what a conversion would do, what works here, and what it costs.

Each command is a module with `add`, which describes it to the parser, and `run`, which does it and
returns the exit code. Exit codes: 0 all is well; 1 something that should work does not; 2 the
command line means nothing; 3 what was asked for cannot be done, and why was said; 130 interrupted
(a server, `publish`, is ended so in order: 0).
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import tensorferry as ferry
from tensorferry._tools.cli import (
    attach,
    bench,
    completion,
    convert,
    doctor,
    inspect,
    plan,
    publish,
)
from tensorferry._tools.cli.terminal import Terminal

COMMANDS = (plan, doctor, bench, inspect, convert, publish, attach, completion)

EPILOGUE = """\
examples:
  tensorferry doctor
  tensorferry plan torch tensorflow --shape 1024,1024 --layout transposed
  tensorferry plan numpy torch --shape 4096,4096 --device cuda --json
  tensorferry bench --from numpy,torch --to torch,jax --output results/
  tensorferry inspect model.safetensors
  tensorferry convert x.npy x.safetensors
  tensorferry publish --once x.npy | tensorferry attach - y.safetensors
  source <(tensorferry completion bash)

exit codes:
  0 all is well, 1 something that should work does not, 2 wrong usage,
  3 what was asked for cannot be done, 130 interrupted
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and a hint, as all errors here are."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, and ends."""
        fact, _, hint = message.partition("\nhint: ")
        Terminal().error(fact, hint=hint or f"{self.prog} --help shows what may be written")
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="tensorferry",
        description="Carries a tensor from any framework to any other, and explains what it does.",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"tensorferry {ferry.__version__}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for module in COMMANDS:
        command = module.add(commands)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.allow_abbrev = False
        command.set_defaults(run=module.run, parser=top)
        shown = command.add_argument_group("output")
        shown.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        if module is not completion:
            shown.add_argument("--json", action="store_true", help="print JSON, for programs")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code."""
    top = parser()
    try:
        arguments = top.parse_args(argv)
    except SystemExit as leave:  # argparse has said what there is to say
        return int(leave.code or 0)
    if arguments.command is None:
        top.print_help()
        return 2
    # What frameworks say while they start is no answer to what was asked.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    terminal = Terminal(json=getattr(arguments, "json", False))
    try:
        code: int = arguments.run(arguments, terminal)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        terminal.clear_line()
        return 130
    except BrokenPipeError:
        # Whoever read has left, as `head` does; Python would say so once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ferry.FerryError as error:
        if arguments.debug:
            traceback.print_exc()
        terminal.error(error)
        return 3
    except Exception as error:
        if arguments.debug:
            traceback.print_exc()
        terminal.error(error, hint="run it again with --debug for the traceback, and report it")
        return 3
