"""Tensors of several frameworks for decorated functions, and checks of their errors."""

from __future__ import annotations

import time

import jax
import mlx.core as mx
import numpy as np
import paddle
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry

KINDS = {
    "numpy": np.ndarray,
    "torch": torch.Tensor,
    "jax": jax.Array,
    "tensorflow": tf.Tensor,
    "paddle": paddle.Tensor,
    "mlx": mx.array,
}


def tensor(framework: str, start: float = 0.0):
    return ferry.to(np.arange(start, start + 3, dtype=np.float32), framework, copy=True)


def is_tensor(x, framework: str, start: float = 0.0) -> bool:
    values = ferry.to(x, "numpy").tolist()
    return isinstance(x, KINDS[framework]) and values == [start, start + 1, start + 2]


def refused(call, *says: str) -> None:
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        call()
    fact, hint = str(caught.value).split("\n")
    assert hint.startswith("hint: ")
    for words in says:
        assert words in fact + hint


def is_faster(call, factor: float, baseline) -> bool:
    """Whether `call` takes less than `factor` times as long as `baseline`. Load on the machine only
    adds to a time, so the minima over all attempts are compared."""
    seconds = baseline_seconds = float("inf")
    for _ in range(20):
        seconds = min(seconds, _min_seconds(call))
        baseline_seconds = min(baseline_seconds, _min_seconds(baseline))
        if seconds < factor * baseline_seconds:
            return True
    return False


def _min_seconds(call) -> float:
    best = float("inf")
    for _ in range(40):
        begin = time.perf_counter()
        for _ in range(200):
            call()
        best = min(best, (time.perf_counter() - begin) / 200)
    return best
