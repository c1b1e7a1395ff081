"""What is known about loaders."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["keeps_its_batches"]


def keeps_its_batches(loader: Any) -> bool:
    """Whether the loader never writes the memory of a batch that it has returned.

    Such memory can be shared while later batches are loaded. Other loaders may fill one buffer
    again and again.
    """
    if type(loader) in (list, tuple):
        return True
    data = sys.modules.get("torch.utils.data")
    # A subclass may return anything. A module that another thread is importing may lack the class.
    if data is None or type(loader) is not getattr(data, "DataLoader", None):
        return False
    # A worker sends each batch in new memory, and the default function stacks into new memory.
    return loader.num_workers > 0 or loader.collate_fn is data.default_collate
