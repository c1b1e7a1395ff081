"""`tensorferry convert`: a file of tensors in another format."""

import argparse
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry import files, saving
from tensorferry.cli import words
from tensorferry.cli.inspect import describe
from tensorferry.cli.terminal import Terminal

EPILOGUE = """\
examples:
  tensorferry convert x.npy x.safetensors
  tensorferry convert model.safetensors.index.json model.npz --names embed.weight,head.weight
  tensorferry convert x.npz x.safetensors --to-dtype float16
  tensorferry convert pixels.bin pixels.npy --dtype uint8 --shape 480,640,3
"""

# Elements that are read, and written, at a time.
PIECE = 16 << 20


def add(commands: Any) -> argparse.ArgumentParser:
    """Describes the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "convert",
        help="write a file of tensors in another format",
        description="Carries tensors from one file to another, whatever the formats.",
        epilog=EPILOGUE,
    )
    command.add_argument("source", metavar="IN")
    command.add_argument("target", metavar="OUT")
    describe(command)
    command.add_argument(
        "--to-format",
        default=None,
        help="npy, npz, safetensors, safetensors-index, tensorproto or raw (by OUT's name)",
    )
    command.add_argument("--names", default=None, help="only these tensors, with commas between")
    command.add_argument("--to-dtype", default=None, metavar="TYPE", help="element type in OUT")
    command.add_argument(
        "--compression",
        type=int,
        default=None,
        metavar="1..9",
        help="deflate the members of a .npz",
    )
    command.add_argument(
        "--dialect",
        choices=("onnx", "tensorflow"),
        default="onnx",
        help="whose TensorProto to write (onnx)",
    )
    return command


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Writes the file."""
    if os.path.realpath(arguments.source) == os.path.realpath(arguments.target):
        raise ferry.InvalidArgument("IN and OUT are the same file\nhint: name another one")
    file = files.inspect(
        arguments.source, format=arguments.format, dtype=arguments.dtype, shape=arguments.shape
    )
    known = {tensor.name: tensor for tensor in file.tensors}
    names = arguments.names.split(",") if arguments.names is not None else list(known)
    for name in names:
        if name not in known:
            raise ferry.InvalidArgument(
                f"{arguments.source} holds no tensor {name!r}"
                f"\nhint: tensorferry inspect {arguments.source} lists them"
            )
    if arguments.names is None and file.skipped:
        name, reason = file.skipped[0]
        raise ferry.UnsupportedDType(
            f"{name!r} cannot be carried: {reason.splitlines()[0]}\nhint: name others by --names"
        )
    dtypes = {name: arguments.to_dtype or known[name].dtype for name in names}
    lonely = saving.name_alone(arguments.target, arguments.to_format)
    named = {name: name or lonely for name in names}
    sources = {target: name for name, target in named.items()}
    keeps = saving.format_of(arguments.target, arguments.to_format).startswith("safetensors")
    if file.metadata and not keeps:
        terminal.note("only safetensors say something about themselves: the metadata is left out")
    total, done = sum(known[name].bytes for name in names), 0

    def pieces(target: str) -> Iterator[Any]:
        nonlocal done
        name = sources[target]
        for piece in _pieces(file.load(name, "numpy")):
            yield ferry.to(piece, "numpy", dtype=arguments.to_dtype)
            done += piece.nbytes
            terminal.progress(done, total, f"bytes, {name or arguments.target}")

    saving.write(
        arguments.target,
        {named[name]: (dtypes[name], list(known[name].shape)) for name in names},
        pieces,
        format=arguments.to_format,
        metadata=_metadata(file) if keeps else {},
        shard_bytes=None,
        durable=True,
        compression=arguments.compression,
        dialect=arguments.dialect,
    )
    size = os.path.getsize(arguments.target)
    if terminal.json:
        terminal.answer(
            {"file": arguments.target, "bytes": size, "tensors": [named[name] for name in names]}
        )
    else:
        terminal.print(f"wrote {arguments.target}: {words.size(size)}, tensors: {len(names)}")
    return 0


def _metadata(file: ferry.File) -> dict[str, str]:
    """What a file says about itself; the index of several has a size that is its own."""
    own = "total_size" if file.format == "safetensors-index" else None
    return {key: value for key, value in file.metadata.items() if key != own}


def _pieces(array: np.ndarray[Any, Any]) -> Any:
    """Rows of an array, as many as are a piece."""
    if array.ndim == 0 or array.size <= PIECE:
        yield array
        return
    step = max(1, PIECE * len(array) // array.size)
    for row in range(0, len(array), step):
        yield array[row : row + step]
