"""Writing tensors to one file, or to several files behind an index, block by block.

A GPU tensor is downloaded in blocks: one block is written while the next one is transferred.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tensorferry._native import InvalidArgumentError, Plan, Writer, to, to_async
from tensorferry.files.formats import format_of
from tensorferry.files.shards import DEFAULT_SHARD_BYTES, ShardIndex
from tensorferry.files.trees import TREE_KEY

# The size of the blocks in which a GPU tensor is downloaded and written.
BLOCK_BYTES = 64 << 20

# The type and shape of each tensor, by name.
Specs = Mapping[str, tuple[str, Sequence[int]]]
# Yields the elements of a tensor as consecutive host tensors.
ReadBlocks = Callable[[str], Iterable[Any]]


def write(
    path: str,
    specs: Specs,
    read_blocks: ReadBlocks,
    *,
    format: str | None,
    metadata: Mapping[str, str],
    shard_bytes: int | None,
    durable: bool,
    tree: str | None = None,
    **options: Any,
) -> None:
    """Writes a file, or files and their index, atomically.

    The record of a tree is kept in the file, or in the index alone: no shard has all tensors.
    """
    recorded = {} if tree is None else {TREE_KEY: tree}
    if format_of(path, format) != "safetensors-index":
        if shard_bytes is not None:
            raise InvalidArgumentError(
                "shard_bytes requires an index of several files"
                "\nhint: save to model.safetensors.index.json, or leave it out"
            )
        pairs = list((dict(metadata) | recorded).items())
        _write_file(
            path, specs, read_blocks, format=format, metadata=pairs, durable=durable, **options
        )
        return
    if options.get("compression") is not None:
        raise InvalidArgumentError(
            "safetensors files do not support compression\nhint: leave compression out"
        )
    if "total_size" in metadata:
        raise InvalidArgumentError(
            "the metadata key total_size is reserved in an index\nhint: use another key"
        )
    sizes = {name: _stored_bytes(*spec) for name, spec in specs.items()}
    index = ShardIndex(path, sizes, DEFAULT_SHARD_BYTES if shard_bytes is None else shard_bytes)
    options = {"metadata": list(metadata.items()), "durable": durable}
    with index.replacing():
        for file, names in index.files():
            shard = {name: specs[name] for name in names}
            _write_file(file, shard, read_blocks, format="safetensors", **options)
        text = index.to_json(dict(metadata) | recorded)
        spec = {"": ("uint8", [len(text)])}
        _write_file(index.path, spec, lambda _: [text], format="raw", durable=durable)


def _write_file(path: str, specs: Specs, read_blocks: ReadBlocks, **options: Any) -> None:
    tensors = [(name, dtype, list(shape)) for name, (dtype, shape) in specs.items()]
    writer = Writer(path, tensors, **options)
    try:
        for number, name in enumerate(specs):
            writer.begin(number)
            for block in read_blocks(name):
                writer.write(block)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _stored_bytes(dtype: str, shape: Sequence[int]) -> int:
    """The size of a tensor's elements in a file."""
    # The first number of the name: 8 of float8_e4m3fn. Narrower types and bool take one byte.
    bits = "".join(filter(str.isdigit, dtype.partition("_")[0]))
    return math.prod(shape) * max(int(bits or 8), 8) // 8


def read_blocks(x: Any, planned: Plan) -> Iterator[Any]:
    """A tensor in host memory; a large GPU tensor in blocks, with one block prefetched."""
    x = _without_gradient(x)
    is_large = planned.source_device.startswith("cuda") and planned.bytes_moved > BLOCK_BYTES
    if not is_large or not hasattr(x, "__getitem__"):
        yield to(x, "numpy")
        return
    next_block: Any = None
    for block in _split(x, planned.shape, planned.bytes_moved):
        current, next_block = next_block, to_async(block, "numpy")
        if current is not None:
            yield current.result()
    if next_block is not None:
        yield next_block.result()


def _without_gradient(x: Any) -> Any:
    """The same values without a gradient, which no file keeps: a save does not warn of it."""
    requires_gradient = getattr(x, "requires_grad", False) or not getattr(x, "stop_gradient", True)
    return x.detach() if requires_gradient else x


def _split(x: Any, shape: Sequence[int], size: int) -> Iterator[Any]:
    """Consecutive slices of a tensor, of at most BLOCK_BYTES where the shape allows it."""
    rows = shape[0] if shape else 1
    if size <= BLOCK_BYTES or not shape:
        yield x
    elif size // rows > BLOCK_BYTES:
        for row in range(rows):
            yield from _split(x[row], shape[1:], size // rows)
    else:
        step = rows * BLOCK_BYTES // size
        for row in range(0, rows, step):
            yield x[row : row + step]
