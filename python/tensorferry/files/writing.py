"""Writing tensors to one file, or to several behind an index, piece by piece as they come."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tensorferry._native import InvalidArgumentError, Plan, Writer, to, to_async
from tensorferry.files.shards import SHARD, Index

# Bytes of a GPU tensor that are written while the next are on their way.
PIECE = 64 << 20

# Names of tensors, and the type and shape of each.
Specs = Mapping[str, tuple[str, Sequence[int]]]
# Gives the elements of a tensor as host tensors, one behind the other.
Pieces = Callable[[str], Iterable[Any]]


def format_of(path: Any, format: str | None) -> str:
    """The format that was given, or that the file's name tells; it may be none that is known."""
    ending = os.path.splitext(os.fsdecode(path))[1][1:].lower()
    return format or {"bin": "raw", "json": "safetensors-index"}.get(ending, ending)


def name_alone(path: Any, format: str | None) -> str:
    """The name of a tensor that is saved alone, in formats that have names."""
    names = {"npz": "arr_0", "safetensors": "tensor", "safetensors-index": "tensor"}
    return names.get(format_of(path, format), "")


def write(
    path: str,
    specs: Specs,
    pieces: Pieces,
    *,
    format: str | None,
    metadata: Mapping[str, str],
    shard_bytes: int | None,
    durable: bool,
    **wishes: Any,
) -> None:
    """Writes a file, or files and their index, whole or not at all."""
    if format_of(path, format) != "safetensors-index":
        if shard_bytes is not None:
            raise InvalidArgumentError(
                "shard_bytes is for several files behind an index"
                "\nhint: save to model.safetensors.index.json, or leave it out"
            )
        said = list(metadata.items())
        _write(path, specs, pieces, format=format, metadata=said, durable=durable, **wishes)
        return
    if wishes.get("compression") is not None:
        raise InvalidArgumentError("safetensors are not compressed\nhint: leave compression out")
    if "total_size" in metadata:
        raise InvalidArgumentError("an index has a total_size of its own\nhint: name it otherwise")
    sizes = {name: _bytes(*spec) for name, spec in specs.items()}
    index = Index(path, sizes, SHARD if shard_bytes is None else shard_bytes)
    told = {"metadata": list(metadata.items()), "durable": durable}
    with index.replacing():
        for file, names in index.files():
            shard = {name: specs[name] for name in names}
            _write(file, shard, pieces, format="safetensors", **told)
        text = index.text(metadata)
        spec = {"": ("uint8", [len(text)])}
        _write(index.path, spec, lambda _: [text], format="raw", durable=durable)


def _write(path: str, specs: Specs, pieces: Pieces, **wishes: Any) -> None:
    tensors = [(name, dtype, list(shape)) for name, (dtype, shape) in specs.items()]
    writer = Writer(path, tensors, **wishes)
    try:
        for number, name in enumerate(specs):
            writer.begin(number)
            for piece in pieces(name):
                writer.write(piece)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _bytes(dtype: str, shape: Sequence[int]) -> int:
    """What the elements of a tensor take in a file."""
    # The first number of the name: 8 of float8_e4m3fn. Those of less have a byte, and so has bool.
    bits = "".join(filter(str.isdigit, dtype.partition("_")[0]))
    return math.prod(shape) * max(int(bits or 8), 8) // 8


def pieces_of(x: Any, told: Plan) -> Iterator[Any]:
    """A tensor in host memory: a large one of a GPU's piece by piece, each fetched ahead."""
    large = told.source_device.startswith("cuda") and told.bytes_moved > PIECE
    if not large or not hasattr(x, "__getitem__"):
        yield to(x, "numpy")
        return
    following: Any = None
    for part in _parts(x, told.shape, told.bytes_moved):
        before, following = following, to_async(part, "numpy")
        if before is not None:
            yield before.result()
    if following is not None:
        yield following.result()


def _parts(x: Any, shape: Sequence[int], size: int) -> Iterator[Any]:
    """Parts of a tensor, in the order of its elements, of so many bytes that it is worth it."""
    rows = shape[0] if shape else 1
    if size <= PIECE or not shape:
        yield x
    elif size // rows > PIECE:
        for row in range(rows):
            yield from _parts(x[row], shape[1:], size // rows)
    else:
        step = rows * PIECE // size
        for row in range(0, rows, step):
            yield x[row : row + step]
