"""Publishes batches in the workers of PyTorch's DataLoader; prints their means."""

from __future__ import annotations

from torch.utils.data import DataLoader, Dataset

import tensorferry as ferry


class Batches(Dataset[ferry.Ticket]):
    """Six batches in shared memory, as tickets."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> ferry.Ticket:
        batch = ferry.empty_shared((4, 3), "float32", framework="torch")
        batch[:] = index
        return ferry.publish(batch, copy=False)


loader = DataLoader(Batches(), batch_size=None, num_workers=2, multiprocessing_context="fork")
got = [float(ferry.attach(ticket, "torch").mean()) for ticket in loader]
print(got)
