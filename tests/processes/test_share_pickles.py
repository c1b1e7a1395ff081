"""Tickets through queues, pipes and pools, by every way to start a process."""

from __future__ import annotations

import pytest
from support.subprocesses import run_program


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_and_futures(method: str) -> None:
    assert run_program("processes/share_through_multiprocessing.py", method) == "out\n"


def test_torch_loaders_pass_tickets() -> None:
    """A worker of a DataLoader makes batches in shared memory, and passes tickets."""
    shown = run_program("processes/share_from_loader_workers.py")
    assert shown == "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"
