"""`tensorferry convert`: a file of tensors in another format."""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry import files
from tensorferry._tools.cli import notation
from tensorferry._tools.cli.inspect import describe
from tensorferry._tools.cli.terminal import Terminal
from tensorferry.files import formats, writing

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
    choose(command, "OUT")
    describe_target(command)
    return command


def choose(command: argparse.ArgumentParser, where: str) -> None:
    """Adds what tells which tensors are carried, and as what."""
    command.add_argument("--names", default=None, help="only these tensors, with commas between")
    command.add_argument(
        "--to-dtype", default=None, metavar="TYPE", help=f"element type in {where}"
    )


def describe_target(command: argparse.ArgumentParser) -> None:
    """Adds what tells how a file is written."""
    command.add_argument(
        "--to-format",
        default=None,
        help="npy, npz, safetensors, safetensors-index, tensorproto or raw (by OUT's name)",
    )
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


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Writes the file."""
    if os.path.realpath(arguments.source) == os.path.realpath(arguments.target):
        raise ferry.InvalidArgumentError("IN and OUT are the same file\nhint: name another one")
    file, chosen = opened(arguments.source, arguments)
    keeps = formats.format_of(arguments.target, arguments.to_format).startswith("safetensors")
    if file.metadata and not keeps:
        terminal.note("only safetensors say something about themselves: the metadata is left out")
    told = write(
        arguments,
        terminal,
        {tensor.name: (tensor.dtype, list(tensor.shape), tensor.bytes) for tensor in chosen},
        lambda name: file.load(name, "numpy"),
        metadata=_metadata(file) if keeps else {},
    )
    if terminal.json:
        terminal.answer(told)
    return 0


def opened(path: str, arguments: argparse.Namespace) -> tuple[ferry.File, list[ferry.FileTensor]]:
    """The file, and those of its tensors that are asked for; all of them can be carried."""
    file = files.inspect(
        path, format=arguments.format, dtype=arguments.dtype, shape=arguments.shape
    )
    known = {tensor.name: tensor for tensor in file.tensors}
    if arguments.names is None and file.skipped:
        name, reason = file.skipped[0]
        raise ferry.UnsupportedDTypeError(
            f"{name!r} cannot be carried: {reason.splitlines()[0]}\nhint: name others by --names"
        )
    names = named(arguments, known, path, f"tensorferry inspect {path} lists them")
    return file, [known[name] for name in names]


def named(
    arguments: argparse.Namespace, known: Mapping[str, Any], what: str, hint: str
) -> list[str]:
    """The names that are asked for: all, or those of --names."""
    names: list[str] = list(known)
    if arguments.names is not None:
        names = list(dict.fromkeys(arguments.names.split(",")))
    for name in names:
        if name not in known:
            raise ferry.InvalidArgumentError(f"{what} holds no tensor {name!r}\nhint: {hint}")
    return names


def write(
    arguments: argparse.Namespace,
    terminal: Terminal,
    tensors: Mapping[str, tuple[str, list[int], int]],
    fetch: Callable[[str], np.ndarray[Any, Any]],
    *,
    metadata: Mapping[str, str],
) -> dict[str, Any]:
    """Writes OUT from tensors of which type, shape and bytes are known; what a program is told."""
    lonely = formats.default_name(arguments.target, arguments.to_format)
    sources = {name or lonely: name for name in tensors}
    total, done = sum(size for _, _, size in tensors.values()), 0

    def pieces(target: str) -> Iterator[Any]:
        nonlocal done
        name = sources[target]
        for piece in pieces_of(fetch(name)):
            yield ferry.to(piece, "numpy", dtype=arguments.to_dtype)
            done += piece.nbytes
            terminal.progress(done, total, f"bytes, {name or arguments.target}")

    specs = {}
    for target, name in sources.items():
        dtype, shape, _ = tensors[name]
        specs[target] = (arguments.to_dtype or dtype, shape)
    writing.write(
        arguments.target,
        specs,
        pieces,
        format=arguments.to_format,
        metadata=metadata,
        shard_bytes=None,
        durable=True,
        compression=arguments.compression,
        dialect=arguments.dialect,
    )
    size = os.path.getsize(arguments.target)
    if not terminal.json:
        terminal.print(f"wrote {arguments.target}: {notation.size(size)}, tensors: {len(tensors)}")
    return {"file": arguments.target, "bytes": size, "tensors": list(sources)}


def _metadata(file: ferry.File) -> dict[str, str]:
    """What a file says about itself; the index of several has a size that is its own."""
    own = "total_size" if file.format == "safetensors-index" else None
    return {key: value for key, value in file.metadata.items() if key != own}


def pieces_of(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Rows of an array, as many as are a piece."""
    if array.ndim == 0 or array.size <= PIECE:
        yield array
        return
    step = max(1, PIECE * len(array) // array.size)
    for row in range(0, len(array), step):
        yield array[row : row + step]
