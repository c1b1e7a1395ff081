"""The example extensions in C and C++, called with tensors of every framework."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import paddle
import pytest
import torch
from support import subprocesses
from support.c_table import borrow, release, take
from support.compilers import build, load
from support.introspect import INSPECTORS, TYPES

import tensorferry as ferry

import mlx.core as mx  # isort: skip
import tensorflow as tf  # isort: skip

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

MAKERS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.array,
    "torch": torch.tensor,
    "jax": jnp.asarray,
    "tensorflow": tf.constant,
    "paddle": paddle.to_tensor,
    "mlx": mx.array,
}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("c")
    return load(build(EXAMPLES / "extension-c" / "vectors.c", "vectors", folder), "vectors")


@pytest.fixture(scope="module")
def nanobind_vectors(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    name = "vectors_nanobind"
    source = EXAMPLES / "extension-nanobind" / "vectors.cpp"
    return load(build(source, name, tmp_path_factory.mktemp("nanobind")), name)


# JAX and MLX have 32-bit floats by default.
FLOATS = [
    *((framework, "float32") for framework in MAKERS),
    *((framework, "float64") for framework in MAKERS if framework not in ("jax", "mlx")),
]


@pytest.mark.parametrize(("framework", "dtype"), FLOATS)
def test_total(vectors: ModuleType, framework: str, dtype: str) -> None:
    array = np.random.default_rng(1).random((5, 4)).astype(dtype)
    x = MAKERS[framework](array)
    assert vectors.total(x) == pytest.approx(array.sum(dtype="float64"), rel=1e-12)


def test_total_of_what_has_to_be_packed(vectors: ModuleType) -> None:
    array = np.arange(12, dtype=">f8").reshape(3, 4)
    assert vectors.total(array[::-1, ::2]) == array[::-1, ::2].sum()
    assert vectors.total(torch.tensor(3.0)) == 3
    assert vectors.total(memoryview(np.ones(3))) == 3
    assert vectors.total(np.empty((0, 3))) == 0


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
def test_scale(vectors: ModuleType, framework: str) -> None:
    x = MAKERS[framework](np.arange(4, dtype="float32"))
    vectors.scale(x, 0.5)
    assert np.array_equal(np.asarray(x), [0, 0.5, 1, 1.5])


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "mlx"])
def test_scale_refuses_immutable_tensors(vectors: ModuleType, framework: str) -> None:
    with pytest.raises(ferry.InvalidArgumentError, match="immutable"):
        vectors.scale(MAKERS[framework](np.arange(4, dtype="float32")), 0.5)


def test_errors_leave_nothing_behind(vectors: ModuleType) -> None:
    x = np.ones(4, "float32")
    before = sys.getrefcount(x)
    held = borrow(x, take(x))
    for _ in range(10):
        with pytest.raises(ferry.BorrowError):
            vectors.scale(x, 2)
        with pytest.raises(TypeError):
            vectors.total(x.astype("int8"))
        with pytest.raises(ValueError, match="rank"):
            vectors.scale(x[:, None], 2)
    release(held)
    assert sys.getrefcount(x) == before
    vectors.scale(x, 2)
    assert x.tolist() == [2] * 4


@pytest.mark.parametrize("by", ["name", "tensor"])
@pytest.mark.parametrize("framework", MAKERS)
def test_ramp(vectors: ModuleType, framework: str, by: str) -> None:
    like = framework if by == "name" else MAKERS[framework](np.ones(1, "float32"))
    result = vectors.ramp(1000, like)
    assert isinstance(result, TYPES[framework])
    expected = np.arange(1000, dtype="float32")
    assert INSPECTORS[framework].values(result) == expected.tobytes()
    with pytest.raises(ferry.FerryError):
        vectors.ramp(10, "no framework")


@pytest.mark.parametrize("framework", MAKERS)
def test_row_sums(nanobind_vectors: ModuleType, framework: str) -> None:
    array = np.arange(12, dtype="float32").reshape(3, 4)
    result = nanobind_vectors.row_sums(MAKERS[framework](array))
    assert isinstance(result, TYPES[framework])
    assert INSPECTORS[framework].values(result) == array.sum(1).tobytes()


def test_row_sums_of_borrowed_memory(nanobind_vectors: ModuleType) -> None:
    array = np.ones((3, 4), "float32")
    held = borrow(array, take(array), exclusive=True)
    with pytest.raises(ferry.BorrowError):
        nanobind_vectors.row_sums(array)
    # A strided view is packed, and the copy would read what is written.
    with pytest.raises(ferry.BorrowError):
        nanobind_vectors.row_sums(array.T)
    release(held)
    assert nanobind_vectors.row_sums(array.T).tolist() == [3] * 4
    assert nanobind_vectors.row_sums(array).tolist() == [4] * 3
    with pytest.raises(ValueError, match="rank"):
        nanobind_vectors.row_sums(array[0])


@pytest.mark.parametrize("case", ["missing", "too_old", "another_major", "error_inside"])
def test_an_extension_without_its_table_says_what_to_install(
    vectors: ModuleType, case: str
) -> None:
    assert vectors.__spec__ is not None
    subprocesses.run_program("extensions/table_that_fails.py", case, str(vectors.__spec__.origin))
