"""Tensors in files: `.npy`, `.npz`, safetensors, TensorProto and raw bytes.

`load` maps the file wherever a framework can use memory as it is, so that nothing is read before it
is used; what is written to such a tensor stays in the process. `save` writes a new file beside the
old one and puts it in its place when every byte is there. Files are never trusted, and nothing in
them is executed.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from types import ModuleType
from typing import Any, SupportsIndex

from tensorferry._native import (
    File,
    InvalidArgument,
    Plan,
    UnsupportedDType,
    Writer,
    plan,
    start,
    to,
)
from tensorferry.shards import SHARD, Index

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

# Bytes of a GPU tensor that are written while the next are on their way.
PIECE = 64 << 20


def inspect(
    path: Path,
    *,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
) -> File:
    """Reads and checks the headers of a file, and says what is in it.

    Args:
        path: The file.
        format: "npy", "npz", "safetensors", "safetensors-index", "tensorproto" or "raw"; found out
            if left out.
        dtype: The element type of raw bytes.
        shape: The shape of raw bytes; one dimension if left out.

    Returns:
        A File: its `format`, `tensors` (name, dtype, shape, bytes), `metadata`, and what is
        `skipped` because it cannot be carried.
    """
    return File(os.fsdecode(path), format=format, dtype=dtype, shape=_lengths(shape))


def load(
    path: Path,
    framework: str | ModuleType = "numpy",
    *,
    device: Any = None,
    dtype: Any = None,
    mmap: bool = True,
    names: str | Iterable[str] | None = None,
    format: str | None = None,
    shape: Sequence[int] | None = None,
    **wishes: Any,
) -> Any:
    """Carries tensors from a file to a framework.

    Args:
        path: The file.
        framework: Whose tensors they become.
        device: Where they shall be; on a GPU they are read while they are uploaded.
        dtype: The element type of the results; of raw bytes, that of the file.
        mmap: Whether memory may be a map of the file, which others must not shorten meanwhile.
        names: Which tensors, by name; only these are read. One name gives one tensor.
        format: The file's format; found out if left out.
        shape: The shape of raw bytes.
        wishes: `copy`, `writable`, `stream` and `budget`, as for `to`.

    Returns:
        One tensor for files that hold one (.npy, TensorProto, raw) and for one name; otherwise a
        dict of tensors by name.
    """
    raw = shape is not None or format_of(path, format) == "raw"
    file = inspect(path, format=format, dtype=dtype if raw else None, shape=shape)
    wishes |= {"device": device, "dtype": None if raw else dtype}
    if file.is_single:
        if names is not None:
            raise InvalidArgument(
                f"{os.fsdecode(path)} holds one tensor, which has no name\nhint: leave names out"
            )
        return file.load(file.tensors[0].name, framework, mmap, **wishes)
    if isinstance(names, str):
        return file.load(names, framework, mmap, **wishes)
    if names is None and file.skipped:
        name, reason = file.skipped[0]
        raise UnsupportedDType(
            f"{os.fsdecode(path)}: {name!r} cannot be carried: {reason.splitlines()[0]}"
            "\nhint: pass names= with those that you want"
        )
    wanted = [tensor.name for tensor in file.tensors] if names is None else _texts(names)
    return file.load_several(wanted, framework, mmap, **wishes)


def save(
    path: Path,
    x: Any,
    *,
    format: str | None = None,
    metadata: Mapping[str, str] | None = None,
    compression: int | None = None,
    dialect: str = "onnx",
    durable: bool = True,
    shard_bytes: int = SHARD,
) -> None:
    """Writes a tensor, or a tree of them, to a file.

    The file appears under its name when all of it has reached the disk; until then, and if anything
    goes wrong, an old file stays as it is.

    Args:
        path: The file. One that ends in `.index.json` is the index of several safetensors files,
            which lie beside it.
        x: A tensor of any framework, on any device; or a dict, list or tuple of such, nested as you
            like: names are joined by dots.
        format: "npy", "npz", "safetensors", "safetensors-index", "tensorproto" or "raw"; by the
            file's name if left out.
        metadata: What a safetensors file is to say about itself.
        compression: Deflates the members of a .npz, at a level from 1 to 9.
        dialect: Whose TensorProto it is to be, "onnx" or "tensorflow".
        durable: Whether to wait for the disk. Without, it is left to the system when the bytes get
            there: quicker, and safe against a process that ends, but not against a power cut.
        shard_bytes: The most bytes of tensors in each file behind an index; a larger tensor has one
            of its own.
    """
    leaves = dict(_named(x)) if _is_tree(x) else {name_alone(path, format): x}
    plans = {name: _planned(name, leaf) for name, leaf in leaves.items()}
    said: list[Any] = list((metadata or {}).items())
    for key, value in said:
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgument(
                f"the metadata {key!r}: {value!r} is not all text\nhint: pass text, such as JSON"
            )
    if format_of(path, format) == "safetensors-index":
        if compression is not None:
            raise InvalidArgument("safetensors are not compressed\nhint: leave compression out")
        index = Index(
            os.fsdecode(path), {name: _bytes(plans[name]) for name in leaves}, shard_bytes
        )
        with index.replacing():
            for file, names in index.files():
                shard = {name: leaves[name] for name in names}
                _write(file, shard, plans, format="safetensors", durable=durable)
            save(path, index.text(dict(said)), format="raw", durable=durable)
        return
    wishes = {"metadata": said, "compression": compression, "dialect": dialect}
    _write(os.fsdecode(path), leaves, plans, format=format, durable=durable, **wishes)


def _write(path: str, leaves: dict[str, Any], plans: dict[str, Plan], **wishes: Any) -> None:
    """Writes one file."""
    tensors = [(name, plans[name].dtype, list(plans[name].shape)) for name in leaves]
    writer = Writer(path, tensors, **wishes)
    try:
        for number, (name, leaf) in enumerate(leaves.items()):
            writer.begin(number)
            for piece in _pieces(leaf, plans[name]):
                writer.write(piece)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


def format_of(path: Path, format: str | None) -> str:
    """The format that was given, or that the file's name tells; it may be none that is known."""
    ending = os.path.splitext(os.fsdecode(path))[1][1:].lower()
    return format or {"bin": "raw", "json": "safetensors-index"}.get(ending, ending)


def _lengths(shape: Any) -> list[int] | None:
    if shape is None:
        return None
    lengths = list(shape) if isinstance(shape, Iterable) else [shape]
    if not all(isinstance(length, SupportsIndex) and index(length) >= 0 for length in lengths):
        raise InvalidArgument(f"{shape!r} is no shape\nhint: write lengths, such as (480, 640)")
    return [index(length) for length in lengths]


def _texts(names: Any) -> list[str]:
    found = list(names) if isinstance(names, Iterable) else [names]
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgument(
            f"{names!r} are no names of tensors\nhint: pass one name, or a list of names"
        )
    return found


def _bytes(told: Plan) -> int:
    """What the elements of a tensor take."""
    bits = re.search(r"\d+", told.dtype)
    return math.prod(told.shape) * (int(bits[0]) if bits else 8) // 8


def _planned(name: str, leaf: Any) -> Plan:
    told = plan(leaf, "numpy")
    if not isinstance(told, Plan):
        raise InvalidArgument(
            f"{name!r} is a tree that has no names to save it by"
            "\nhint: pass dicts, lists and tuples of tensors"
        )
    return told


def _pieces(x: Any, told: Plan) -> Iterator[Any]:
    """The tensor in host memory: a large one of a GPU's piece by piece, each fetched ahead."""
    large = told.source_device != "cpu" and told.bytes_moved > PIECE
    if not large or not told.shape or not hasattr(x, "__getitem__"):
        yield to(x, "numpy")
        return
    rows = told.shape[0]
    step = max(1, rows * PIECE // told.bytes_moved)
    job = start(x[:step], "numpy")
    for row in range(step, rows + step, step):
        following = start(x[row : row + step], "numpy") if row < rows else None
        yield job.result()
        if following is not None:
            job = following


def _is_tree(x: Any) -> bool:
    return isinstance(x, Mapping | list | tuple)


def name_alone(path: Path, format: str | None) -> str:
    """The name of a tensor that was saved alone, in formats that have names."""
    names = {"npz": "arr_0", "safetensors": "tensor", "safetensors-index": "tensor"}
    return names.get(format_of(path, format), "")


def _named(x: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree, each by the names that lead to it."""
    seen: set[str] = set()
    parts = x.items() if isinstance(x, Mapping) else enumerate(x)
    for key, value in parts:
        if not isinstance(key, str | int) or key == "":
            raise InvalidArgument(
                f"a tensor cannot be saved by the key {key!r}\nhint: use names that are text"
            )
        name = f"{place}.{key}" if place else str(key)
        for found, leaf in _named(value, name) if _is_tree(value) else [(name, value)]:
            if found in seen:
                raise InvalidArgument(
                    f"two tensors would be saved as {found!r}\nhint: rename one of them"
                )
            seen.add(found)
            yield found, leaf
