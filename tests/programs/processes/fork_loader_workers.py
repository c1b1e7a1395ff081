"""Converts in the forked workers of PyTorch's DataLoader, and in the process that has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from support.fork_work import work
from support.subprocesses import HANG_SECONDS
from torch.utils.data import DataLoader, Dataset

import tensorferry as ferry

held = ferry.to(np.arange(6, dtype=np.float32), "torch")


class Images(Dataset[dict[str, Any]]):
    """Twelve images, each with its number in every element."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = np.full((512, 1024), index, np.float32)
        dense = ferry.to(image.T, "torch", copy=True)
        half = ferry.to(image[::2], "torch", dtype="float16")
        shared = ferry.to(image, "torch")
        assert shared.data_ptr() == image.ctypes.data
        return {"dense": dense, "half": half, "shared": shared, "kept": ferry.to(held, "numpy")}


def check(batches: Iterable[dict[str, Any]]) -> None:
    """Compares three batches of four with their numbers."""
    seen = 0
    for number, batch in enumerate(batches):
        want = torch.arange(4.0 * number, 4.0 * number + 4)
        assert batch["dense"].shape == (4, 1024, 512)
        assert (batch["dense"][:, 0, 0] == want).all()
        assert (batch["dense"][:, -1, -1] == want).all()
        assert (batch["half"][:, 7, 7].float() == want).all()
        assert (batch["shared"].mean((1, 2)) == want).all()
        assert batch["kept"][0].tolist() == [0, 1, 2, 3, 4, 5]
        back = ferry.to(batch, "numpy")
        assert (back["shared"][:, 3, 3] == want.numpy()).all()
        seen += 1
    assert seen == 3


def loader() -> Iterable[dict[str, Any]]:
    """A loader whose workers live as long as it does."""
    made: Iterable[dict[str, Any]] = DataLoader(
        Images(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context="fork",
        timeout=HANG_SECONDS,
        persistent_workers=True,
    )
    return made


first = loader()
check(first)
work()
check(DataLoader(Images(), batch_size=4))
check(loader())
check(first)
print("out")
