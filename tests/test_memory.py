"""Large results come from memory that is kept, bounded, and given back."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from support import subprocesses

import tensorferry as ferry

POOLED_BYTES = 16 << 20


@pytest.fixture(autouse=True)
def _fresh():
    ferry.empty_cache()


def large() -> np.ndarray:
    return np.arange(POOLED_BYTES // 4, dtype=np.float32)


def test_a_block_returns_and_is_used_again():
    x = large()
    before = ferry.memory_stats()
    first = ferry.to(x, "numpy", copy=True)
    now = ferry.memory_stats()
    assert now.used_bytes - before.used_bytes >= POOLED_BYTES
    assert (now.used_blocks - before.used_blocks, now.misses - before.misses) == (1, 1)
    place = first.ctypes.data
    del first
    now = ferry.memory_stats()
    assert now.used_bytes == before.used_bytes
    assert now.idle_bytes >= POOLED_BYTES
    again = ferry.to(x[::-1], "numpy", copy=True)
    assert again.ctypes.data == place
    assert (again == x[::-1]).all()
    assert ferry.memory_stats().hits == now.hits + 1
    assert ferry.memory_stats().idle_blocks == now.idle_blocks - 1


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "tensorflow", "paddle"])
def test_every_framework_gives_its_block_back(target):
    x = large()
    ferry.to(x, target, copy=True)
    ferry.to(np.zeros(1), "paddle")  # what Paddle has dropped is released by the next call
    before = ferry.memory_stats().used_bytes
    result = ferry.to(x, target, copy=True)
    assert ferry.memory_stats().used_bytes - before >= POOLED_BYTES
    assert ferry.to(result, "numpy").sum() == x.sum()
    del result
    ferry.to(np.zeros(1), "paddle")
    assert ferry.memory_stats().used_bytes == before


def test_results_that_live_share_no_block():
    x = large()
    results = [ferry.to(x + i, "numpy", copy=True) for i in range(5)]
    for i, result in enumerate(results):
        assert (result == x + i).all()
    assert len({result.ctypes.data for result in results}) == 5


def test_trim_gives_the_idle_memory_back():
    x = large()
    kept = ferry.to(x, "numpy", copy=True)
    ferry.to(x, "numpy", copy=True)
    idle = ferry.memory_stats().idle_bytes
    assert idle >= POOLED_BYTES
    assert ferry.empty_cache() == idle
    now = ferry.memory_stats()
    assert (now.idle_bytes, now.idle_blocks) == (0, 0)
    assert now.used_bytes >= POOLED_BYTES
    assert (kept == x).all()
    assert ferry.empty_cache() == 0


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_small_tensors_of_a_tree_share_blocks_of_the_pool(framework):
    tree = [np.full(4096, i, "float32") for i in range(1000)]
    before = ferry.memory_stats().used_bytes
    result = ferry.to(tree, framework, copy=True)
    for i, x in enumerate(result):
        assert (float(x[0]), float(x[-1])) == (i, i)
        assert ferry.plan(x, "jax").shares
    used = ferry.memory_stats().used_bytes - before
    assert sum(x.nbytes for x in tree) - (2 << 20) <= used <= 20 << 20
    # The last tensor of a block keeps it, and no other block.
    last = result[-1]
    del result, x
    gc.collect()
    assert 0 < ferry.memory_stats().used_bytes - before < used
    assert float(last[0]) == 999
    del last
    gc.collect()
    assert ferry.memory_stats().used_bytes == before


def test_small_results_are_none_of_the_pools_business():
    before = ferry.memory_stats()
    kept = ferry.to(np.ones(1000), "numpy", copy=True)
    assert ferry.memory_stats().used_bytes == before.used_bytes
    assert kept.sum() == 1000


@pytest.mark.parametrize(
    ("text", "limit", "idle"),
    [("0", 0, 0), ("40M", 40 << 20, 32 << 20), ("1G", 1 << 30, 96 << 20)],
)
def test_the_limit_is_kept(text, limit, idle):
    subprocesses.run_program("front/pool_limit.py", str(limit), str(idle), TENSORFERRY_POOL=text)


def test_what_is_held_can_be_read():
    text = repr(ferry.memory_stats())
    assert text.startswith("<MemoryStats ")
    assert "idle" in text
    assert 0 < ferry.memory_stats().limit_bytes < 1 << 50


def test_a_child_has_a_pool_of_its_own():
    subprocesses.run_program("front/pool_after_fork.py")
