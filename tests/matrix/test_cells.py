"""The matrix: every source in every case, to every target, in every dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matrix.cells import Cell
from matrix.check import Failures, check
from matrix.constructors import dtypes_of, make, pairs_of_source_and_case
from matrix.expect import SourceProperties
from support.dtypes import ALL, FLOAT32, sample, significant
from support.introspect import (
    FRAMEWORKS,
    INSPECTORS,
    TensorFlowInspector,
    has_dtype,
    names_dtype,
    torch_dtype,
)
from support.memory import churn

import tensorferry as ferry

import jax.numpy as jnp  # isort: skip
import tensorflow as tf  # isort: skip


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize(("source", "case"), pairs_of_source_and_case())
def test_cell(source: str, case: str, target: str) -> None:
    failures = Failures()
    for dtype in dtypes_of(source, case):
        with failures.observe(dtype):
            cell = make(source, case, dtype)
            assert cell is not None
            result = check(cell, target)
            if case == "base dies" and result is not None:
                # The source goes too, and its memory, if it went, is used for other things.
                values, size = cell.values, max(64, len(cell.values))
                del cell
                kept = churn(size)
                now = significant(dtype, INSPECTORS[target].values(result))
                assert now == values, "the values died with the base"
                assert kept
    failures.report()


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("rank", [65, 253])
@pytest.mark.parametrize("source", ["torch", "tensorflow"])
def test_more_dimensions_than_numpy_has(source: str, rank: int, target: str) -> None:
    """Both make tensors of more than 64 dimensions; who cannot hold them says so, nobody aborts."""
    raw = sample(FLOAT32, 2)
    shape = (1,) * (rank - 1) + (2,)
    strides = (8,) * (rank - 1) + (4,)
    if source == "torch":
        x = torch.from_numpy(raw.view(np.float32)).reshape(shape)
        facts = SourceProperties("torch", FLOAT32, shape, strides, x.data_ptr())
    else:
        x = tf.reshape(tf.constant(raw.view(np.float32)), shape)
        facts = SourceProperties(
            "tensorflow", FLOAT32, shape, strides, TensorFlowInspector.address(x), immutable=True
        )
    if source == target:
        assert ferry.to(x, target) is x
        assert ferry.plan(x, target).action == "itself"
    elif target == "tensorflow":
        # NumPy shows no such tensor; TensorFlow itself does.
        result = ferry.to(x, target)
        assert result.shape.rank == rank
        assert tf.reshape(result, [2]).numpy().tobytes() == raw.tobytes()
    else:
        check(Cell(x, facts, raw.tobytes()), target)


@pytest.mark.parametrize("source", ["torch", "jax"])
def test_types_that_a_version_does_not_exchange(source: str) -> None:
    """Older versions of PyTorch and JAX have 8-bit floats that they do not hand to others: said
    so."""
    failures = Failures()
    for dtype in (dtype for dtype in ALL if "float8" in dtype.name and names_dtype(source, dtype)):
        with failures.observe(dtype):
            x = (
                torch.ones(3).to(torch_dtype(dtype))
                if source == "torch"
                else jnp.ones(3, dtype.numpy)
            )
            if has_dtype(source, dtype):
                assert ferry.to(x, source) is x
                assert np.array_equal(ferry.to(x, "numpy").astype(np.float32), np.ones(3))
                continue
            with pytest.raises(ferry.UnsupportedDTypeError, match="hint: "):
                ferry.to(x, "numpy")
            with pytest.raises(ferry.UnsupportedDTypeError, match="hint: "):
                ferry.to(np.ones(3, dtype.numpy), source)
    failures.report()


@pytest.mark.skipif(
    not hasattr(torch.utils.dlpack, "ReadOnlyTensorWrapper"),
    reason="this torch has no read-only tensors",
)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_read_only_torch_tensors(target: str) -> None:
    """torch 2.15's wrapper around a tensor that must not be written."""
    t = torch.arange(12, dtype=torch.float32)
    wrapped = torch.utils.dlpack.ReadOnlyTensorWrapper(t)
    plan = ferry.plan(wrapped, target)
    result = ferry.to(wrapped, target)
    if target == "torch":
        assert result is wrapped
        return
    assert INSPECTORS[target].values(result) == INSPECTORS["torch"].values(t)
    # The wrapper hides which allocator the memory is from, and others can write the tensor.
    assert plan.action == ("share" if target == "numpy" else "copy")
    if target == "numpy":
        assert not result.flags.writeable
