"""The command `tensorferry`: plans, diagnosis, benchmarks, files and sharing between processes.

Each command is a module with `add`, which adds it to the parser, and `run`, which runs it and
returns the exit code: 0 success, 1 a check failed, 2 invalid usage, 3 the command failed with an
error, 130 interrupted. An interrupted `publish` exits with 0, because that is how a server ends.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

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
from tensorferry._tools.cli.hints import Command
from tensorferry._tools.cli.parser import Parser
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
  0 success, 1 a check failed, 2 invalid usage, 3 the command failed, 130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="tensorferry",
        description="Converts tensors between frameworks, files and processes, and explains how.",
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
        command.set_defaults(run=module.run, parser=top, command_parser=command)
        output = command.add_argument_group("output")
        output.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        if module is not completion:
            output.add_argument("--json", action="store_true", help="print JSON")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    top = parser()
    try:
        arguments = top.parse_args(argv)
    except SystemExit as exit:  # argparse has printed the message
        return int(exit.code or 0)
    if arguments.command is None:
        top.print_help()
        return 2
    # Silences messages that frameworks print while they start.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    used: Parser = arguments.command_parser
    command = Command(used.prog, used.options)
    terminal = Terminal(json=getattr(arguments, "json", False), command=command)
    try:
        code: int = arguments.run(arguments, terminal)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        terminal.clear_line()
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does; Python would report it again at exit.
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
        terminal.error(error, hint="run it again with --debug, and report the traceback")
        return 3
