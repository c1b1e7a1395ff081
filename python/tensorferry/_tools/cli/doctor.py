"""`tensorferry doctor`: finds out what works on this machine by converting real tensors."""

import argparse
from typing import Any

from tensorferry._tools import samples
from tensorferry._tools.cli.doctor_text import lines
from tensorferry._tools.cli.notation import frameworks, positive_seconds
from tensorferry._tools.cli.terminal import Terminal
from tensorferry._tools.doctor.examine import examine
from tensorferry.framework_register import TENSOR_FRAMEWORKS

EPILOGUE = """\
Frameworks are imported and tensors are converted in separate processes: a process that crashes or
hangs is reported. Every cell of the matrix is a conversion that was just made. Its values were
compared bit for bit, and its memory address with that of the source.

examples:
  tensorferry doctor
  tensorferry doctor --frameworks numpy,torch,jax
  tensorferry doctor --dtype bfloat16 --timeout 300 --json

exit codes:
  0 no problems, 1 problems were found, 130 interrupted
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="find out what works on this machine",
        description="Reports which frameworks work here, and which conversions between them share "
        "memory, copy, or are impossible.",
        epilog=EPILOGUE,
    )
    command.add_argument(
        "--frameworks",
        type=frameworks,
        default=None,
        metavar="NAMES",
        help="only these, separated by commas (numpy,torch)",
    )
    command.add_argument(
        "--dtype",
        choices=samples.DTYPES,
        default="float32",
        metavar="TYPE",
        help="element type of the tensors (float32)",
    )
    command.add_argument(
        "--timeout",
        type=positive_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long a step may take before it counts as hanging (120)",
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Examines the machine and prints the report."""
    report = examine(
        arguments.frameworks or TENSOR_FRAMEWORKS,
        dtype=arguments.dtype,
        timeout=arguments.timeout,
        progress=terminal.progress,
    )
    if terminal.json:
        terminal.print_json(report.as_dict())
    else:
        for line in lines(report, terminal):
            terminal.print(line)
    absent = [
        framework.name
        for framework in report.frameworks
        if framework.state == "absent" and framework.name in (arguments.frameworks or ())
    ]
    if absent:
        terminal.error(
            f"not installed: {', '.join(absent)}",
            hint="install it, or leave it out of --frameworks",
        )
    return 0 if report.healthy and not absent else 1
