"""`tensorferry inspect`: lists the tensors of a file."""

import argparse
from typing import Any

import tensorferry as ferry
from tensorferry import files
from tensorferry._tools.cli import notation
from tensorferry._tools.cli.notation import size
from tensorferry._tools.cli.terminal import Terminal, clean, table

EPILOGUE = """\
examples:
  tensorferry inspect model.safetensors
  tensorferry inspect x.npz --json
  tensorferry inspect pixels.bin --dtype uint8 --shape 480,640,3
"""

FORMATS = ("npy", "npz", "safetensors", "safetensors-index", "tensorproto", "raw")


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="list the tensors of a file",
        description="Validates the headers of a file and lists its tensors: .npy, .npz, "
        "safetensors (single or sharded), TensorProto, raw bytes.",
        epilog=EPILOGUE,
    )
    command.add_argument("file", metavar="FILE", help="the file")
    add_source_options(command)
    return command


def add_source_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that describe a file, for formats that do not describe themselves."""
    command.add_argument(
        "--format",
        choices=FORMATS,
        default=None,
        metavar="FORMAT",
        help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} (by the file's name)",
    )
    command.add_argument(
        "--dtype",
        type=notation.dtype,
        default=None,
        metavar="TYPE",
        help="element type of raw bytes, or of elements whose type the file does not name",
    )
    command.add_argument(
        "--shape", type=notation.shape, default=None, help="shape of raw bytes (480,640,3)"
    )


def open_file(path: str, arguments: argparse.Namespace) -> ferry.File:
    """The file. Options that would have no effect are refused: they may be meant otherwise."""
    file = files.inspect(
        path, format=arguments.format, dtype=arguments.dtype, shape=arguments.shape
    )
    if file.format == "raw":
        return file
    if arguments.shape is not None:
        raise ferry.InvalidArgumentError(
            f"--shape describes raw bytes, and {path} is {file.format}\nhint: leave out --shape"
        )
    stored = list(dict.fromkeys(tensor.dtype for tensor in file.tensors))
    if arguments.dtype is not None and stored and arguments.dtype not in stored:
        can_convert = "to_dtype" in arguments
        convert = f", or write --to-dtype {arguments.dtype} to convert it" if can_convert else ""
        raise ferry.InvalidArgumentError(
            f"--dtype is {arguments.dtype}, and {path} stores {' and '.join(stored)}"
            f"\nhint: leave out --dtype{convert}"
        )
    return file


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Prints the list."""
    file = open_file(arguments.file, arguments)
    if terminal.json:
        terminal.print_json(to_dict(file))
        return 0
    total = sum(tensor.bytes for tensor in file.tensors)
    number = notation.count(len(file.tensors), "tensor")
    terminal.print(f"{clean(arguments.file)}: {file.format}, {number}, {size(total)}")
    rows = [
        [
            clean(tensor.name) or "-",
            tensor.dtype,
            str(tuple(tensor.shape)),
            size(tensor.bytes),
            ", ".join(_properties(tensor)),
        ]
        for tensor in file.tensors
    ]
    for line in table([["name", "type", "shape", "size", ""], *rows], right={3}):
        terminal.print("  " + line)
    for name, reason in file.skipped:
        terminal.print(f"  {clean(name)} cannot be converted: {clean(reason.splitlines()[0])}")
    for key, value in file.metadata.items():
        terminal.print(f"  {clean(key)} = {clean(value)}")
    if file._tree is not None:
        terminal.print("  tree: recorded, with its numbers and text; convert keeps it")
    return 0


def to_dict(file: ferry.File) -> dict[str, Any]:
    """The list as --json prints it."""
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


def _properties(tensor: Any) -> list[str]:
    found = []
    if tensor.offset is None:
        found.append("compressed or encoded")
    if not tensor.native:
        found.append("other byte order")
    if tensor.fortran:
        found.append("Fortran order")
    return found
