"""A write to what was received changes nobody else's tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support import dask_tasks

import tensorferry as ferry

WRITABLE = ("numpy", "torch", "paddle")
VALUES = np.arange(12, dtype=np.float32)


@pytest.mark.parametrize("framework", WRITABLE)
def test_a_worker_that_writes_changes_neither_the_other_nor_the_client(
    cluster: Any, framework: str
) -> None:
    x = ferry.to(VALUES, framework, copy=True)
    before = dask_tasks.see(x)
    there = cluster.put(x)
    changed = cluster.call(dask_tasks.increment, there).result()
    assert changed == (framework, "float32", (12,), (VALUES + 1).tobytes())
    assert cluster.call(dask_tasks.see, there, worker=cluster.first).result() == before
    assert dask_tasks.see(x) == before


@pytest.mark.parametrize("framework", WRITABLE)
def test_a_client_that_writes_changes_no_worker(cluster: Any, framework: str) -> None:
    there = cluster.put(ferry.to(VALUES, framework, copy=True))
    before = cluster.call(dask_tasks.see, there, worker=cluster.first).result()
    mine, again = there.result(), there.result()
    assert dask_tasks.increment(mine) != before
    assert dask_tasks.see(again) == before
    assert cluster.call(dask_tasks.see, there, worker=cluster.first).result() == before


def test_tensors_of_one_message_do_not_overlap(cluster: Any) -> None:
    first, second = cluster.put({"a": torch.zeros(3), "b": torch.zeros(3)}).result().values()
    first.fill_(7)
    assert torch.equal(second, torch.zeros(3))


def test_a_write_after_the_scatter_does_not_reach_the_worker(cluster: Any) -> None:
    x = torch.zeros(3)
    there = cluster.put(x)
    x.fill_(7)
    assert cluster.call(dask_tasks.see, there).result() == dask_tasks.see(torch.zeros(3))


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_immutable_tensors_stay_immutable_through_later_hops(cluster: Any, framework: str) -> None:
    """What NumPy reads of them in the receiving process is read-only."""
    x = ferry.to(VALUES, framework, copy=True)
    back = cluster.call(dask_tasks.same, cluster.put(x)).result()
    assert not np.asarray(back).flags.writeable
    assert not ferry.to(back, "numpy").flags.writeable
