"""Several safetensors files behind one index, as large models come.

The index says which file has which tensor, and is written last. New files have names that no file
had before, so that the old index and its files are as they were until the new index takes its
place; then those of the old files go that were made here for this index, and that no other index
in the folder names.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from operator import index as whole
from typing import Any, SupportsIndex

from tensorferry._native import FerryError, File, InvalidArgumentError

# As model hubs have it: 5 GB.
SHARD = 5_000_000_000


class Index:
    """The index of files that are to be written."""

    def __init__(self, path: str, sizes: Mapping[str, int], most: Any) -> None:
        """For tensors of these names and bytes, and files of so many bytes at most."""
        if not isinstance(most, SupportsIndex) or isinstance(most, bool) or whole(most) < 1:
            raise InvalidArgumentError(
                f"shard_bytes is {most!r}, which is no size\nhint: write a number of bytes"
            )
        if not sizes:
            raise InvalidArgumentError(
                "there are no tensors to index\nhint: pass a tree that has some"
            )
        # What a link points to is replaced, and its files lie beside it.
        self.path = os.path.realpath(path) if os.path.islink(path) else path
        folder, name = os.path.split(self.path)
        if not name.isprintable() or "\\" in name:
            raise InvalidArgumentError(
                f"files cannot be named after {name!r}\nhint: use letters that can be printed"
            )
        self.folder, self.total = folder or ".", sum(sizes.values())
        self.stem = name.removesuffix(".json").removesuffix(".index").removesuffix(".safetensors")
        self.old = self._made_here(_files_of(self.path))
        self.shards = _shared_out(sizes, whole(most))
        tag, count = os.urandom(4).hex(), len(self.shards)
        self.names = [
            f"{self.stem}-{tag}-{number:05}-of-{count:05}.safetensors"
            for number in range(1, count + 1)
        ]

    def files(self) -> Iterator[tuple[str, list[str]]]:
        """The path of each file, and the names of its tensors."""
        for name, shard in zip(self.names, self.shards, strict=True):
            yield os.path.join(self.folder, name), shard

    def text(self, metadata: Mapping[str, str]) -> bytes:
        """What the index says."""
        import json  # not above: most who import tensorferry save no index

        weights = {
            tensor: name
            for name, shard in zip(self.names, self.shards, strict=True)
            for tensor in shard
        }
        told = {"metadata": {**metadata, "total_size": self.total}, "weight_map": weights}
        return (json.dumps(told, indent=2) + "\n").encode()

    @contextlib.contextmanager
    def replacing(self) -> Iterator[None]:
        """A block that writes files and index; then the files of the old or the new are gone."""
        try:
            yield
        except BaseException:
            # It may be there all the same, if the interruption came late.
            if not set(self.names) <= _files_of(self.path):
                self._remove(self.names)
            raise
        self._remove(self.old)

    def _made_here(self, names: Iterable[str]) -> set[str]:
        """Those that were made for this index."""
        import re  # not above: it would be a tenth of the time that `import tensorferry` takes

        ours = re.compile(rf"{re.escape(self.stem)}-[0-9a-f]{{8}}-\d{{5}}-of-\d{{5}}\.safetensors")
        return {name for name in names if ours.fullmatch(name)}

    def _remove(self, names: Iterable[str]) -> None:
        """Removes files, but for those that an index names; what cannot be removed stays."""
        named: set[str] = set()
        for other in os.listdir(self.folder):
            if other.endswith(".json"):
                named |= _files_of(os.path.join(self.folder, other))
        for name in set(names) - named:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, name))


def _shared_out(sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """Which names go into one file: in their order, and of so many bytes at most."""
    shards: list[list[str]] = []
    room = 0
    for name, size in sizes.items():
        if not shards or size > room:
            shards.append([])
            room = most
        shards[-1].append(name)
        room -= size
    return shards


def _files_of(path: str) -> set[str]:
    """The files that an index names, if it is one and they are there."""
    import json

    try:
        File(path, format="safetensors-index")
        with open(path, encoding="utf-8") as index:
            return set(json.load(index)["weight_map"].values())
    except (FerryError, OSError, ValueError, KeyError):
        return set()
