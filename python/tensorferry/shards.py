"""Several safetensors files behind one index, as large models come.

The index says which file has which tensor, and is written last. Files that an index names already
are not touched before the new index is there, so that a reader finds a whole model at any time:
where names are taken, the new files get others, and the old ones are removed at the end.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorferry._native import FerryError, File, InvalidArgument

# As model hubs have it: 5 GB.
SHARD = 5_000_000_000


class Index:
    """The index of files that are to be written."""

    def __init__(self, path: str, sizes: Mapping[str, int], most: Any) -> None:
        """For tensors of these names and bytes, and files of so many bytes at most."""
        if not isinstance(most, int) or most < 1:
            raise InvalidArgument(
                f"shard_bytes is {most!r}, which is no size\nhint: write a number of bytes"
            )
        if not sizes:
            raise InvalidArgument("there are no tensors to index\nhint: pass a tree that has some")
        self.path, self.total = path, sum(sizes.values())
        self.old = _files_of(path)
        self.shards: list[list[str]] = []
        room = 0
        for name, size in sizes.items():
            if not self.shards or size > room:
                self.shards.append([])
                room = most
            self.shards[-1].append(name)
            room -= size
        folder, name = os.path.split(path)
        self.folder = folder or "."
        stem = name.removesuffix(".json").removesuffix(".index").removesuffix(".safetensors")
        self.names = self._free_names(stem)

    def _free_names(self, stem: str) -> list[str]:
        """Names that no file has."""
        tag = ""
        while True:
            count = len(self.shards)
            names = [
                f"{stem}{tag}-{number:05}-of-{count:05}.safetensors"
                for number in range(1, count + 1)
            ]
            if not any(os.path.lexists(os.path.join(self.folder, name)) for name in names):
                return names
            tag = f"-{os.urandom(4).hex()}"

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
            self._remove(self.names)
            raise
        self._remove(self.old.difference(self.names))

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))


def _files_of(path: str) -> set[str]:
    """The files that an index names, if it is one and they are there."""
    import json

    try:
        File(path, format="safetensors-index")
        with open(path, encoding="utf-8") as index:
            return set(json.load(index)["weight_map"].values())
    except FerryError:
        return set()
