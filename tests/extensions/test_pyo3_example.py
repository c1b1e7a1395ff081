"""The example extension in Rust, over every framework."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import extensions, subprocesses
from support.introspect import FRAMEWORKS, INSPECTORS, check_tensor

import tensorferry as ferry

MUTABLE = ("numpy", "torch", "paddle")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return extensions.load("tensorferry-example-pyo3")


def matrix() -> np.ndarray:
    return np.arange(1, 13, dtype="float32").reshape(3, 4)


def tensor(framework: str, values: np.ndarray) -> Any:
    """A tensor of the framework over memory of its own."""
    return ferry.to(values, framework, copy=True)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_normalise(example: ModuleType, framework: str) -> None:
    values = matrix()
    norm = np.sqrt((values**2).sum(1)) + np.float32(0.5)
    result = example.normalise(tensor(framework, values), 0.5)
    assert isinstance(result, type(tensor(framework, values)))
    found = ferry.to(result, "numpy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, values / norm[:, None], rtol=1e-6)


# JAX has no float64 by default.
SUMMED = [
    (framework, dtype)
    for framework in FRAMEWORKS
    for dtype in ("float32", "float64", "int32", "bfloat16")
    if (framework, dtype) != ("jax", "float64")
]


@pytest.mark.parametrize(("framework", "dtype"), SUMMED)
def test_row_sums(example: ModuleType, framework: str, dtype: str) -> None:
    x = ferry.to(matrix(), framework, dtype=dtype, copy=True)
    if framework == "jax" and dtype in ("int32", "bfloat16"):
        with pytest.raises(TypeError, match="float64"):
            example.row_sums(x)
        return
    expected = matrix().sum(1).astype("float32" if dtype == "float32" else "float64")
    check_tensor(framework, example.row_sums(x), expected)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_count_true(example: ModuleType, framework: str) -> None:
    mask = matrix() > 6
    result = example.count_true(tensor(framework, mask))
    check_tensor(framework, result, mask.sum(0).astype("int32"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_matmul_of_two_frameworks(example: ModuleType, framework: str) -> None:
    """The result is of the framework of the first argument."""
    values = matrix()
    for other in FRAMEWORKS:
        result = example.matmul(tensor(framework, values), tensor(other, values.T))
        check_tensor(framework, result, values @ values.T)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_scale_in_place(example: ModuleType, framework: str) -> None:
    x = tensor(framework, matrix())
    if framework in MUTABLE:
        address = INSPECTORS[framework].address(x)
        assert example.scale_in_place(x, 2.0) is None
        assert INSPECTORS[framework].address(x) == address
        check_tensor(framework, x, 2 * matrix())
    else:
        with pytest.raises(ferry.InvalidArgumentError, match="immutable") as caught:
            example.scale_in_place(x, 2.0)
        assert caught.value.hint
        check_tensor(framework, x, matrix())


def test_a_tensor_of_another_type_is_refused_with_a_hint(example: ModuleType) -> None:
    with pytest.raises(TypeError, match="accepts float32, and the tensor is float64") as caught:
        example.normalise(matrix().astype("float64"), 0.5)
    assert 'dtype="float32"' in caught.value.hint


def test_a_tensor_of_another_rank_is_refused(example: ModuleType) -> None:
    with pytest.raises(ferry.UnsupportedError, match="rank 2, and the tensor has rank 1"):
        example.normalise(matrix()[0], 0.5)
    with pytest.raises(ValueError, match="has 3 dimensions, and this function accepts 2"):
        example.row_sums(np.ones((2, 2, 2), "int8"))


def test_an_object_that_is_not_a_tensor_is_refused(example: ModuleType) -> None:
    for function in (example.count_true, example.row_sums):
        with pytest.raises(TypeError, match="NoneType"):
            function(None)


def test_arguments_are_released(example: ModuleType) -> None:
    x = matrix()
    before = sys.getrefcount(x)
    example.normalise(x, 0.5)
    example.scale_in_place(x, 2.0)
    example.row_sums(x)
    with pytest.raises(ValueError, match="no matrix product"):
        example.matmul(x, x)
    with pytest.raises(ferry.UnsupportedDTypeError):
        example.count_true(x)
    assert sys.getrefcount(x) == before
    # A borrow that was not released would exclude this one.
    example.scale_in_place(x, 0.5)


@pytest.mark.parametrize("case", ["not_installed", "no_table", "other_major", "smaller_table"])
def test_an_import_error_where_tensorferry_is_missing_or_too_old(case: str) -> None:
    module = extensions.build("tensorferry-example-pyo3")
    subprocesses.run_program("extensions/unusable_tables.py", case, str(module.parent))


@pytest.mark.parametrize("case", ["invalid_library", "error_inside", "interrupted"])
def test_another_error_of_the_import_is_not_replaced(case: str) -> None:
    module = extensions.build("tensorferry-example-pyo3")
    subprocesses.run_program("extensions/unusable_tables.py", case, str(module.parent))
