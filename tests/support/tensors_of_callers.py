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


def min_seconds(call) -> float:
    """The minimum seconds of a call."""
    best = 1.0
    for _ in range(40):
        begin = time.perf_counter()
        for _ in range(200):
            call()
        best = min(best, (time.perf_counter() - begin) / 200)
    return best
