"""Several safetensors files behind one index, the format of large models.

The index says which file holds which tensor, and is written last. New files have unused names, so
the old index and its files stay valid until the new index replaces the old one. Then the old files
are removed, except those that were not made for this index or that another index in the folder
names.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from operator import index as to_int
from typing import Any, SupportsIndex

from tensorferry._native import FerryError, File, InvalidArgumentError

# The default of model hubs.
DEFAULT_SHARD_BYTES = 5_000_000_000


class ShardIndex:
    """The index of files that are being written."""

    def __init__(self, path: str, sizes: Mapping[str, int], max_bytes: Any) -> None:
        """An index for tensors of these names and sizes, in files of at most `max_bytes`."""
        if (
            not isinstance(max_bytes, SupportsIndex)
            or isinstance(max_bytes, bool)
            or to_int(max_bytes) < 1
        ):
            raise InvalidArgumentError(
                f"shard_bytes={max_bytes!r} is not a positive integer"
                "\nhint: pass a number of bytes, such as 5 * 10**9"
            )
        if not sizes:
            raise InvalidArgumentError(
                "an index needs at least one tensor\nhint: pass a tree that holds a tensor"
            )
        # A symbolic link is followed: its target is replaced, and the files are beside the target.
        self.path = os.path.realpath(path) if os.path.islink(path) else path
        folder, name = os.path.split(self.path)
        if not name.isprintable() or "\\" in name:
            raise InvalidArgumentError(
                f"the name {name!r} is not printable or has a backslash\nhint: use another name"
            )
        self.folder, self.total_bytes = folder or ".", sum(sizes.values())
        self.stem = name.removesuffix(".json").removesuffix(".index").removesuffix(".safetensors")
        self.old_names = self._matching_names(_indexed_files(self.path))
        self.shards = _split_into_shards(sizes, to_int(max_bytes))
        tag, count = os.urandom(4).hex(), len(self.shards)
        self.names = [
            f"{self.stem}-{tag}-{number:05}-of-{count:05}.safetensors"
            for number in range(1, count + 1)
        ]

    def files(self) -> Iterator[tuple[str, list[str]]]:
        """The path of each file, and the names of its tensors."""
        for name, shard in zip(self.names, self.shards, strict=True):
            yield os.path.join(self.folder, name), shard

    def to_json(self, metadata: Mapping[str, str]) -> bytes:
        """The content of the index file."""
        import json  # deferred: few users save an index

        weights = {
            tensor: name
            for name, shard in zip(self.names, self.shards, strict=True)
            for tensor in shard
        }
        content = {"metadata": {**metadata, "total_size": self.total_bytes}, "weight_map": weights}
        return (json.dumps(content, indent=2) + "\n").encode()

    @contextlib.contextmanager
    def replacing(self) -> Iterator[None]:
        """A block that writes the files and the index; on exit the unused files are removed."""
        try:
            yield
        except BaseException:
            # A late interruption may leave the new index in place.
            if not set(self.names) <= _indexed_files(self.path):
                self._remove(self.names)
            raise
        self._remove(self.old_names)

    def _matching_names(self, names: Iterable[str]) -> set[str]:
        """The names that an earlier index at this path has generated."""
        import re  # deferred: it takes a tenth of the time of `import tensorferry`

        pattern = re.compile(
            rf"{re.escape(self.stem)}-[0-9a-f]{{8}}-\d{{5}}-of-\d{{5}}\.safetensors"
        )
        return {name for name in names if pattern.fullmatch(name)}

    def _remove(self, names: Iterable[str]) -> None:
        """Removes files, except those that an index names; ignores files that cannot be removed."""
        in_use: set[str] = set()
        try:
            others = os.listdir(self.folder)
        except OSError:  # the folder does not exist, or must not be read
            return
        for other in others:
            if other.endswith(".json"):
                in_use |= _indexed_files(os.path.join(self.folder, other))
        for name in set(names) - in_use:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, name))


def _split_into_shards(sizes: Mapping[str, int], max_bytes: int) -> list[list[str]]:
    """The names of the tensors in each file, in their order."""
    shards: list[list[str]] = []
    free_bytes = 0
    for name, size in sizes.items():
        if not shards or size > free_bytes:
            shards.append([])
            free_bytes = max_bytes
        shards[-1].append(name)
        free_bytes -= size
    return shards


def _indexed_files(path: str) -> set[str]:
    """The files that a valid index names; empty if the file is not a valid index."""
    import json

    try:
        File(path, format="safetensors-index")
        with open(path, encoding="utf-8") as index:
            return set(json.load(index)["weight_map"].values())
    except (FerryError, OSError, ValueError, KeyError):
        return set()
