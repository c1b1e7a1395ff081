"""`tensorferry inspect`: what is in a file."""

import argparse
from typing import Any

from tensorferry import files
from tensorferry._native import File
from tensorferry._tools.cli.notation import shape, size
from tensorferry._tools.cli.terminal import Terminal, clean, table

EPILOGUE = """\
examples:
  tensorferry inspect model.safetensors
  tensorferry inspect x.npz --json
  tensorferry inspect pixels.bin --dtype uint8 --shape 480,640,3
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Describes the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="say what is in a file",
        description="Checks the headers of a file of tensors, and lists what is in it: .npy, .npz, "
        "safetensors (also sharded, by the index), TensorProto, raw bytes.",
        epilog=EPILOGUE,
    )
    command.add_argument("file", metavar="FILE")
    describe(command)
    return command


def describe(command: argparse.ArgumentParser) -> None:
    """Adds what tells a file that does not tell itself."""
    command.add_argument(
        "--format",
        default=None,
        help="npy, npz, safetensors, safetensors-index, tensorproto or raw",
    )
    command.add_argument("--dtype", default=None, metavar="TYPE", help="element type of raw bytes")
    command.add_argument("--shape", type=shape, default=None, help="shape of raw bytes (480,640,3)")


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Prints the list."""
    file = files.inspect(
        arguments.file, format=arguments.format, dtype=arguments.dtype, shape=arguments.shape
    )
    if terminal.json:
        terminal.answer(told(file))
        return 0
    total = sum(tensor.bytes for tensor in file.tensors)
    number = len(file.tensors)
    terminal.print(
        f"{arguments.file}: {file.format}, {number} tensor{'s' * (number != 1)}, {size(total)}"
    )
    rows = [
        [
            clean(tensor.name) or "-",
            tensor.dtype,
            "x".join(map(str, tensor.shape)) or "scalar",
            size(tensor.bytes),
            ", ".join(_marks(tensor)),
        ]
        for tensor in file.tensors
    ]
    for line in table([["name", "type", "shape", "size", ""], *rows], right={3}):
        terminal.print("  " + line)
    for name, reason in file.skipped:
        terminal.print(f"  {clean(name)} cannot be carried: {clean(reason.splitlines()[0])}")
    for key, value in file.metadata.items():
        terminal.print(f"  {clean(key)} = {clean(value)}")
    return 0


def told(file: File) -> dict[str, Any]:
    """The same for programs."""
    names = ("name", "dtype", "bytes", "offset", "native", "fortran")
    return {
        "format": file.format,
        "tensors": [
            {**{name: getattr(tensor, name) for name in names}, "shape": list(tensor.shape)}
            for tensor in file.tensors
        ],
        "metadata": file.metadata,
        "skipped": [{"name": name, "reason": reason} for name, reason in file.skipped],
    }


def _marks(tensor: Any) -> list[str]:
    marks = []
    if tensor.offset is None:
        marks.append("compressed or encoded")
    if not tensor.native:
        marks.append("other byte order")
    if tensor.fortran:
        marks.append("Fortran order")
    return marks
