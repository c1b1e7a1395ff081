"""`tensorferry convert`: writes a file of tensors in another format."""

import argparse
import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry._tools.cli import inspect, notation
from tensorferry._tools.cli.inspect import FORMATS, add_source_options
from tensorferry._tools.cli.terminal import Terminal, clean
from tensorferry.files import formats, writing

EPILOGUE = """\
examples:
  tensorferry convert x.npy x.safetensors
  tensorferry convert model.safetensors.index.json model.npz --names embed.weight,head.weight
  tensorferry convert x.npz x.safetensors --to-dtype float16
  tensorferry convert pixels.bin pixels.npy --dtype uint8 --shape 480,640,3
"""

# The number of elements that are read and written at a time.
BLOCK_ELEMENTS = 16 << 20

# The number of tensors that a note names.
MAX_NOTED_NAMES = 3


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds the command to the parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        "convert",
        help="write a file of tensors in another format",
        description="Converts a file of tensors to another format.",
        epilog=EPILOGUE,
    )
    command.add_argument("source", metavar="IN", help="the file to read")
    command.add_argument("target", metavar="OUT", help="the file to write")
    add_source_options(command)
    add_selection(command, "OUT")
    add_target_options(command)
    return command


def add_selection(command: argparse.ArgumentParser, where: str) -> None:
    """Adds the options that select tensors and their element type."""
    command.add_argument(
        "--names", default=None, help="only these tensors, separated by commas; * for any text"
    )
    command.add_argument(
        "--to-dtype",
        type=notation.dtype,
        default=None,
        metavar="TYPE",
        help=f"element type of all tensors in {where}, integers too",
    )


def add_target_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of the file that is written."""
    command.add_argument(
        "--to-format",
        choices=FORMATS,
        default=None,
        metavar="FORMAT",
        help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} (by OUT's name)",
    )
    command.add_argument(
        "--compression",
        type=notation.compression,
        default=None,
        metavar="1..9",
        help="deflate the members of a .npz",
    )
    command.add_argument(
        "--dialect",
        choices=("onnx", "tensorflow"),
        default="onnx",
        help="TensorProto message type (onnx)",
    )


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Writes the file."""
    if os.path.realpath(arguments.source) == os.path.realpath(arguments.target):
        raise ferry.InvalidArgumentError("IN and OUT are the same file\nhint: name another one")
    file, chosen = open_file(arguments.source, arguments)
    to_format = formats.format_of(arguments.target, arguments.to_format)
    keeps_metadata = to_format.startswith("safetensors")
    summary = write(
        arguments,
        terminal,
        {tensor.name: (tensor.dtype, list(tensor.shape), tensor.bytes) for tensor in chosen},
        lambda name: file.load(name, "numpy"),
        metadata=_metadata(file) if keeps_metadata else {},
        # The tree of all tensors is not that of some.
        tree=file._tree if keeps_metadata and arguments.names is None else None,
    )
    # After the file: a conversion that fails leaves nothing out.
    if file.metadata and not keeps_metadata:
        terminal.note(f"{to_format} files have no metadata: the metadata is left out")
    if file._tree is not None and not keeps_metadata:
        terminal.note(f"{to_format} files keep tensors only: other values of the tree are left out")
    elif file._tree is not None and arguments.names is not None:
        terminal.note("--names selects tensors: the tree around them is left out")
    if terminal.json:
        terminal.print_json(summary)
    return 0


def open_file(
    path: str, arguments: argparse.Namespace
) -> tuple[ferry.File, list[ferry.FileTensor]]:
    """The file and its selected tensors, all of which can be converted."""
    file = inspect.open_file(path, arguments)
    known = {tensor.name: tensor for tensor in file.tensors}
    if arguments.names is None and file.skipped:
        name, reason = file.skipped[0]
        raise ferry.UnsupportedDTypeError(
            f"{notation.quote(name)} cannot be converted: {reason.splitlines()[0]}"
            "\nhint: name others by --names"
        )
    names = select_names(arguments, known, path, f"list them with tensorferry inspect {path}")
    return file, [known[name] for name in names]


def select_names(
    arguments: argparse.Namespace, known: Mapping[str, Any], what: str, hint: str
) -> list[str]:
    """All names, or those that match a pattern of --names, in the order of the patterns."""
    if arguments.names is None:
        return list(known)
    names: list[str] = []
    for pattern in arguments.names.split(","):
        # A name may have spaces and special characters, so it is compared as it is first.
        exact = [name for name in (pattern, pattern.strip()) if name in known]
        found = exact[:1] or fnmatch.filter(known, pattern.strip())
        if not found:
            raise ferry.InvalidArgumentError(
                f"{what} has no tensor {notation.quote(pattern.strip())}\nhint: {hint}"
            )
        names += found
    return list(dict.fromkeys(names))


def write(
    arguments: argparse.Namespace,
    terminal: Terminal,
    tensors: Mapping[str, tuple[str, list[int], int]],
    fetch: Callable[[str], np.ndarray[Any, Any]],
    *,
    metadata: Mapping[str, str],
    tree: str | None = None,
) -> dict[str, Any]:
    """Writes OUT, and returns the summary that --json prints."""
    default_name = formats.default_name(arguments.target, arguments.to_format)
    sources = {name or default_name: name for name in tensors}
    total, done = sum(size for _, _, size in tensors.values()), 0

    def read_blocks(target: str) -> Iterator[Any]:
        nonlocal done
        name = sources[target]
        for block in split_blocks(fetch(name)):
            yield ferry.to(block, "numpy", dtype=arguments.to_dtype)
            done += block.nbytes
            terminal.progress(done, total, f"bytes, {name or arguments.target}")

    specs = {}
    for target, name in sources.items():
        dtype, shape, _ = tensors[name]
        specs[target] = (arguments.to_dtype or dtype, shape)
    writing.write(
        arguments.target,
        specs,
        read_blocks,
        format=arguments.to_format,
        metadata=metadata,
        tree=tree,
        shard_bytes=None,
        durable=True,
        compression=arguments.compression,
        dialect=arguments.dialect,
    )
    size = os.path.getsize(arguments.target)
    if not terminal.json:
        number = notation.count(len(tensors), "tensor")
        terminal.print(f"wrote {clean(arguments.target)}: {number}, {notation.size(size)}")
    note = _note_on_integers(
        arguments.to_dtype, {name: dtype for name, (dtype, *_) in tensors.items()}
    )
    if note:
        terminal.note(note)
    return {"file": arguments.target, "bytes": size, "tensors": list(sources)}


def _note_on_integers(to_dtype: str | None, dtypes: Mapping[str, str]) -> str | None:
    """A note on the integers among other tensors that a cast makes floating-point numbers.

    Counters and indices in a checkpoint lose precision so. Where all tensors are integers, the cast
    is what the caller wants.
    """
    if to_dtype is None or not to_dtype.startswith(("float", "bfloat", "complex")):
        return None
    names = [name for name, dtype in dtypes.items() if dtype.startswith(("int", "uint"))]
    if not names or len(names) == len(dtypes):
        return None
    shown = ", ".join(names[:MAX_NOTED_NAMES])
    more = f" and {len(names) - MAX_NOTED_NAMES} more" if len(names) > MAX_NOTED_NAMES else ""
    verb = "becomes" if len(names) == 1 else "become"
    return f"{notation.count(len(names), 'integer tensor')} {verb} {to_dtype} too: {shown}{more}"


def _metadata(file: ferry.File) -> dict[str, str]:
    """The metadata of a file, without the total size of an index."""
    reserved = "total_size" if file.format == "safetensors-index" else None
    return {key: value for key, value in file.metadata.items() if key != reserved}


def split_blocks(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Consecutive rows of an array, in blocks of about BLOCK_ELEMENTS."""
    if array.ndim == 0 or array.size <= BLOCK_ELEMENTS:
        yield array
        return
    step = max(1, BLOCK_ELEMENTS * len(array) // array.size)
    for row in range(0, len(array), step):
        yield array[row : row + step]
