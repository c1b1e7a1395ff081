"""Feeds from a DataLoader of PyTorch with workers, and prints how many batches were right.

At the end it exits in the middle of epochs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import tensorferry as ferry

COUNT = 12
#: These live until the interpreter is finalised.
epochs: list[Any] = []


class Squares(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return COUNT * 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((1000,), index, dtype=torch.float32), "y": index * index}


def right(feed: ferry.Feed) -> int:
    """The number of batches of an epoch, all of which must have the right values."""
    found = list(feed)
    for number, batch in enumerate(found):
        rows = range(number * 4, number * 4 + 4)
        assert batch["x"].dtype == "float64", batch["x"].dtype
        assert batch["x"][:, 0].tolist() == list(rows), number
        assert batch["y"].tolist() == [row * row for row in rows], number
    return len(found)


def fed(**options: Any) -> ferry.Feed:
    # By fork, because a worker that imports PyTorch again takes seconds to start.
    loader = DataLoader(Squares(), 4, num_workers=2, multiprocessing_context="fork", **options)
    return ferry.feed(loader, "numpy", dtype={"x": "float64", "y": None})


def main() -> None:
    feed = fed()
    print("new workers", right(feed), right(feed))
    feed = fed(persistent_workers=True)
    print("persistent workers", right(feed), right(feed))
    for number, _batch in enumerate(fed(), 1):
        if number == 3:
            break
    print("early exit", number)

    for options in ({}, {"persistent_workers": True}):
        epochs.append(iter(fed(**options)))
        next(epochs[-1])
    print("at the end", flush=True)


if __name__ == "__main__":
    main()
