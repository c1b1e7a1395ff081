"""`tensorferry plan`: prints what a conversion would do, and why."""

import argparse
from typing import Any

import tensorferry as ferry
from tensorferry._tools import samples
from tensorferry._tools.cli import hints, notation
from tensorferry._tools.cli.terminal import Terminal
from tensorferry.framework_register import TENSOR_FRAMEWORKS, load

EPILOGUE = """\
examples:
  tensorferry plan numpy torch
  tensorferry plan torch tensorflow --shape 1024,1024 --layout transposed
  tensorferry plan numpy jax --dtype float64 --to-dtype default
  tensorferry plan torch numpy --from-device cuda --shape 1000000 --json
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "plan",
        help="explain what a conversion would do",
        description="Makes a tensor as described, and explains what `ferry.to` would do with it.",
        epilog=EPILOGUE,
    )
    for name, metavar, what in (("source", "FROM", "source"), ("target", "TO", "result")):
        command.add_argument(
            name,
            metavar=metavar,
            type=notation.framework,
            choices=TENSOR_FRAMEWORKS,
            help=f"framework of the {what}",
        )
    command.add_argument(
        "--shape",
        type=notation.shape,
        default=(1024, 1024),
        help='lengths: 1024,1024 or 1024x1024 or "(1024, 1024)" (1024,1024); () for a scalar',
    )
    command.add_argument(
        "--dtype",
        choices=samples.DTYPES,
        default="float32",
        metavar="TYPE",
        help="element type of the source (float32)",
    )
    command.add_argument(
        "--layout",
        choices=samples.LAYOUTS,
        default="dense",
        help="memory layout of the source (dense)",
    )
    command.add_argument(
        "--from-device",
        type=notation.source_device,
        default=None,
        metavar="DEVICE",
        help="device of the source: cpu, cuda, cuda:1",
    )
    command.add_argument(
        "--device",
        type=notation.device,
        default=None,
        metavar="DEVICE",
        help="device of the result: cpu, cuda, cuda:1 or default",
    )
    command.add_argument(
        "--to-dtype",
        type=notation.dtype_or_default,
        default=None,
        metavar="TYPE",
        help="element type of the result; default for one that its framework has",
    )
    command.add_argument(
        "--copy", action=argparse.BooleanOptionalAction, default=None, help="always copy, or never"
    )
    command.add_argument(
        "--writable", action="store_true", default=None, help="require a writable result"
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Makes the source and prints the plan."""
    if arguments.source != arguments.target:
        # In an order in which one process can import both.
        for name in sorted({arguments.source, arguments.target}, key=TENSOR_FRAMEWORKS.index):
            load(name)
    device = arguments.from_device or ("cuda" if arguments.source == "cupy" else "cpu")
    x = samples.make(
        arguments.source,
        arguments.shape,
        dtype=arguments.dtype,
        layout=arguments.layout,
        device=device,
        seed=None,
    )
    plan = ferry.plan(
        x,
        arguments.target,
        device=arguments.device,
        dtype=arguments.to_dtype,
        copy=arguments.copy,
        writable=arguments.writable,
    )
    if terminal.json:
        terminal.print_json(plan.as_dict())
    else:
        terminal.print(_in_options(plan, terminal.command))
    return 0


def _in_options(plan: ferry.Plan, command: hints.Command) -> str:
    """The text of a plan, whose advice names options."""
    if not plan.advice:
        return str(plan)
    return str(plan).replace(plan.advice, hints.in_options(plan.advice, command))
