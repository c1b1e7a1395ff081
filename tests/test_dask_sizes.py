"""`dask.sizeof` of tensors, by an entry point that does not need tensorferry itself."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import paddle
import pytest
import tensorflow as tf
import torch
from support import subprocesses

import tensorferry as ferry

MIB = 1 << 20


@pytest.fixture(scope="module")
def sizeof() -> Any:
    from dask.sizeof import sizeof

    return sizeof


def test_dask_finds_the_entry_point() -> None:
    (found,) = importlib.metadata.entry_points(group="dask.sizeof", name="tensorferry")
    assert found.value == "tensorferry_dask_sizeof:register"


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", "paddle", "mlx"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_a_tensor_counts_its_elements(sizeof: Any, framework: str, dtype: str) -> None:
    x = ferry.to(np.zeros((4, MIB // 16), np.float32), framework, dtype=dtype)
    assert sizeof(x) == MIB // 4 * {"float32": 4, "bfloat16": 2, "bool": 1}[dtype]
    assert MIB // 4 < sizeof([x, {"a": x}]) < 3 * MIB


def test_a_view_counts_its_own_bytes(sizeof: Any) -> None:
    matrix = torch.zeros(256, 1024)
    assert sizeof(matrix[3]) == 4096
    assert sizeof(matrix[:, ::2]) == 256 * 512 * 4
    assert sizeof(matrix.t()) == MIB
    assert sizeof(paddle.zeros([256, 1024])[3]) == 4096


def test_an_axis_of_stride_zero_counts_once(sizeof: Any) -> None:
    """As Dask counts NumPy's."""
    row = torch.zeros(1, 1024).expand(256, 1024)
    assert sizeof(row) == sizeof(np.broadcast_to(np.zeros((1, 1024), np.float32), (256, 1024)))
    assert sizeof(torch.zeros(1).expand(0, 5)) == 0


@pytest.mark.parametrize(
    ("x", "size"),
    [
        (torch.zeros(()), 4),
        (torch.zeros(0, 3), 0),
        (torch.nn.Parameter(torch.zeros(3)), 12),
        (torch.eye(3).to_sparse(), 3 * (2 * 8 + 4)),
        (torch.eye(3).to_sparse_csc(), (4 + 3) * 8 + 3 * 4),
        (torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged), 20),
        (torch.ones(3).to_mkldnn(), 12),
        (jnp.zeros(()), 4),
        (jax.random.key(0), 8),
        (tf.zeros([0, 3]), 0),
        (tf.Variable(tf.zeros([3])), 12),
        (tf.sparse.from_dense([[1.0, 0.0]]), 2 * 8 + 4 + 2 * 8),
        (paddle.zeros([]), 4),
        (paddle.sparse.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0]), 4 * 8 + 2 * 4),
        (mx.zeros((2, 3), dtype=mx.float16), 12),
    ],
)
def test_special_tensors(sizeof: Any, x: Any, size: int) -> None:
    assert sizeof(x) == size


def test_what_has_no_memory_counts_as_a_python_object(sizeof: Any) -> None:
    for x in (torch.zeros(MIB, device="meta"), tf.constant(["text"] * 3), torch.float32, tf.int8):
        assert 0 < sizeof(x) < 1000


def test_dask_works_where_tensorferry_cannot_be_imported() -> None:
    shown = subprocesses.run_program("front/dask_without_tensorferry.py")
    assert shown.split() == ["4194304", "400", "3"]


def test_the_entry_point_imports_the_standard_library_alone() -> None:
    shown = subprocesses.run_program("front/imports_of_dask_sizes.py")
    assert shown == "[]\n"
