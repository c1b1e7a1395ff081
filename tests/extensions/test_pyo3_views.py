"""The views of tensorferry-pyo3 over every source, layout and dtype, and their results."""

from __future__ import annotations

import gc
import resource
import sys
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from matrix.check import Failures
from matrix.constructors import dtypes_of, make, pairs_of_source_and_case
from support import exact, extensions
from support.dtypes import ALL, NAMED, DType, sample, significant
from support.introspect import FRAMEWORKS, INSPECTORS, check_tensor

import tensorferry as ferry

pytestmark = pytest.mark.extensions

# Those with a Rust type.
DTYPES = [dtype for dtype in ALL if dtype.is_numpys_own or dtype.name == "bfloat16"]
IN_ELEMENTS = {"dense": (4, 1), "transposed": (1, 4), "reversed": (-4, 1), "sliced": (16, 2)}


@pytest.fixture(scope="module")
def functions() -> ModuleType:
    return extensions.load("tensorferry-test-pyo3")


@pytest.mark.parametrize(("source", "case"), pairs_of_source_and_case())
def test_cell(functions: ModuleType, source: str, case: str) -> None:
    failures = Failures()
    for dtype in dtypes_of(source, case):
        with failures.observe(dtype):
            cell = make(source, case, dtype)
            assert cell is not None
            described = functions.describe(cell.object)
            shape = list(cell.facts.shape)
            is_copied = described[-1]
            assert described == (dtype.name, shape, "cpu", len(shape), is_copied)
            if dtype not in DTYPES:
                with pytest.raises(ValueError, match="has no Rust type"):
                    functions.copied(cell.object)
                continue
            others = set(INSPECTORS["numpy"].values(ferry.to(cell.object, "numpy"))) - {0, 1}
            if dtype.kind == "bool" and others and not is_copied:
                with pytest.raises(ValueError, match="accepts 0 and 1"):
                    functions.copied(cell.object)
                continue
            array, view_is_copied = functions.copied(cell.object)
            assert view_is_copied == is_copied
            assert (array.dtype, list(array.shape)) == (dtype.numpy, shape)
            assert array.tobytes() == cell.values
            assert functions.copied_by_any(cell.object).tobytes() == cell.values
    failures.report()


@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts_agree_with_exact_arithmetic(functions: ModuleType, source: DType) -> None:
    raw = np.frombuffer(significant(source, sample(source, 64).tobytes()), "u1")
    x = raw.view(source.numpy).reshape(4, 16)[:, ::-1]
    for target in DTYPES:
        result, is_copied = functions.cast(x, target.name)
        assert is_copied == (source != target)
        expected = exact.cast(source, target, np.frombuffer(x.tobytes(), "u1"))
        assert result.dtype == target.numpy
        assert result.tobytes() == expected, (source, target)


def test_a_cast_of_many_elements_is_the_same(functions: ModuleType) -> None:
    x = np.arange(1 << 18, dtype="int64").reshape(512, 512).T
    result, is_copied = functions.cast(x, "float32")
    assert is_copied
    assert (result == x).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_cast_returns_to_the_framework(functions: ModuleType, framework: str) -> None:
    x = ferry.to(np.arange(6, dtype="int32").reshape(2, 3), framework, copy=True)
    result, is_copied = functions.cast(x, "float32")
    assert is_copied
    check_tensor(framework, result, np.arange(6, dtype="float32").reshape(2, 3))


@pytest.mark.parametrize("name", IN_ELEMENTS)
def test_a_view_has_the_memory_and_strides_of_its_tensor(functions: ModuleType, name: str) -> None:
    base = np.arange(48, dtype="float32")
    x = {
        "dense": base[:12].reshape(3, 4),
        "transposed": base[:12].reshape(3, 4).T,
        "reversed": base[:12].reshape(3, 4)[::-1],
        "sliced": base.reshape(6, 8)[::2, ::2],
    }[name]
    address, strides, elements = functions.layout(x)
    assert address == x.ctypes.data
    assert tuple(strides) == IN_ELEMENTS[name] == tuple(step // 4 for step in x.strides)
    assert elements == (x.ravel().tolist() if name == "dense" else None)


def test_strides_that_mean_nothing_do_not_prevent_a_slice(functions: ModuleType) -> None:
    x = np.lib.stride_tricks.as_strided(np.ones(3, "float32"), (1, 3, 1), (1 << 40, 4, -(1 << 40)))
    assert functions.layout(x)[2] == [1, 1, 1]
    empty = np.lib.stride_tricks.as_strided(np.ones(3, "float32"), (0, 3), (-400, 1 << 40))
    assert functions.layout(empty)[2] == []


def test_an_empty_tensor_with_too_long_dimensions_is_refused(functions: ModuleType) -> None:
    x = torch.empty(0).as_strided((0, 1 << 40, 1 << 40), (1, 1, 1))
    with pytest.raises(ValueError, match="too many elements"):
        functions.layout(x)


def test_fixed_ranks(functions: ModuleType) -> None:
    cube = bytearray(24)
    view = memoryview(cube).cast("B", (2, 3, 4))
    assert functions.ranks(np.float64(2.5), np.arange(5), view) == (2.5, 5, 24)
    with pytest.raises(ferry.UnsupportedError, match="rank 0, and the tensor has rank 1"):
        functions.ranks(np.ones(1), np.arange(5), view)


def test_an_optional_argument(functions: ModuleType) -> None:
    assert functions.optional() is None
    assert functions.optional(None) is None
    assert functions.optional(torch.ones(3)) == 3


class TestCopies:
    """Copied are elements that Rust cannot read in place, and nothing else."""

    @pytest.mark.parametrize("name", ["swapped", "unaligned", "conjugate"])
    def test_copied(self, functions: ModuleType, name: str) -> None:
        x: Any = {
            "swapped": np.arange(3, dtype=">f4"),
            "unaligned": np.frombuffer(bytearray(13), "u1")[1:].view("f4"),
            "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        }[name]
        array, is_copied = functions.copied(x)
        assert is_copied
        assert array.tolist() == x.tolist()

    def test_not_written(self, functions: ModuleType) -> None:
        swapped = np.arange(3, dtype=">f4")
        with pytest.raises(ferry.FerryError) as caught:
            functions.add_indices(swapped)
        assert caught.value.hint
        assert swapped.tolist() == [0, 1, 2]


class TestWrites:
    @pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
    def test_strided(self, functions: ModuleType, framework: str) -> None:
        values = np.zeros((4, 6), "float32")
        x = ferry.to(values, framework, copy=True)
        functions.add_indices(x[1:3, ::2])
        values[1:3, ::2] += np.arange(6).reshape(2, 3)
        check_tensor(framework, x, values)

    def test_reversed(self, functions: ModuleType) -> None:
        x = np.zeros((2, 3), "float32")
        functions.add_indices(x[::-1, ::-1])
        assert x.ravel().tolist() == [5, 4, 3, 2, 1, 0]

    def test_bytes_of_python(self, functions: ModuleType) -> None:
        memory = bytearray(12)
        functions.add_indices(memoryview(memory).cast("f"))
        assert memoryview(memory).cast("f").tolist() == [0, 1, 2]

    def test_empty(self, functions: ModuleType) -> None:
        functions.add_indices(np.zeros((0, 3), "float32"))

    @pytest.mark.parametrize(
        "name", ["read-only", "bytes", "jax", "broadcast", "window", "non-leaf"]
    )
    def test_refused(self, functions: ModuleType, name: str) -> None:
        read_only = np.ones(3, "float32")
        read_only.flags.writeable = False
        x: Any = {
            "read-only": read_only,
            "bytes": memoryview(bytes(12)).cast("f"),
            "jax": jnp.ones(3),
            "broadcast": torch.ones(1).expand(3),
            "window": torch.ones(8).unfold(0, 4, 1),
            "non-leaf": torch.ones(3, requires_grad=True) * 2,
        }[name]
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            functions.add_indices(x)
        assert caught.value.hint

    def test_a_leaf_with_a_gradient(self, functions: ModuleType) -> None:
        leaf = torch.zeros(3, requires_grad=True)
        functions.add_indices(leaf)
        assert leaf.tolist() == [0, 1, 2]


class TestBools:
    def test_valid(self, functions: ModuleType) -> None:
        x = np.array([True, False, True])
        assert functions.copied(x)[0].tolist() == [True, False, True]
        functions.invert(x)
        assert x.tolist() == [False, True, False]
        assert functions.copied(np.zeros((0, 2), bool))[0].shape == (0, 2)

    @pytest.mark.parametrize("position", [0, 500, 999])
    def test_other_bytes_are_refused(self, functions: ModuleType, position: int) -> None:
        raw = np.ones(1000, "uint8")
        raw[position] = 130
        for x in (raw.view(bool), raw.view(bool)[::-1], raw.view(bool).reshape(10, 100).T):
            for function in (functions.copied, functions.invert, functions.copied_by_any):
                with pytest.raises(ValueError, match="has the byte 130") as caught:
                    function(x)
                assert "hint: " in str(caught.value)
        # A borrow that was not released would exclude this one.
        raw[position] = 1
        functions.invert(raw.view(bool))
        assert not raw.any()

    def test_offered_as_bytes(self, functions: ModuleType) -> None:
        x = np.array([0, 1, 130], "uint8").view(bool)
        assert functions.bool_bytes(x) == ([0, 1, 130], [False, True, True])
        with pytest.raises(TypeError, match="accepts bool, and the tensor is uint8"):
            functions.bool_bytes(x.view("uint8"))

    def test_cast(self, functions: ModuleType) -> None:
        result, _ = functions.cast(np.array([0.0, 0.5, np.nan]), "bool")
        assert result.view("uint8").tolist() == [0, 1, 1]


ARRANGED = {
    "dense": np.arange(12).reshape(3, 4),
    "transposed": np.arange(12).reshape(3, 4).T,
    "reversed": np.arange(12).reshape(3, 4)[::-1],
    "sliced": np.arange(48).reshape(6, 8)[1::2, ::2],
    "empty": np.zeros((0, 4)),
    "scalar": np.array(7),
    "deep": np.arange(8).reshape(1, 2, 1, 2, 1, 2, 1),
}


class TestResults:
    @pytest.mark.parametrize("framework", FRAMEWORKS)
    @pytest.mark.parametrize("name", ARRANGED)
    def test_every_layout(self, functions: ModuleType, framework: str, name: str) -> None:
        result, address = functions.arranged(name, framework)
        gc.collect()
        check_tensor(framework, result, ARRANGED[name].astype("float32"))
        # PyTorch and Paddle have no negative strides.
        if framework == "numpy" or (framework in ("torch", "paddle") and name != "reversed"):
            assert name == "empty" or INSPECTORS[framework].address(result) == address

    def test_a_result_is_writable_and_its_own(self, functions: ModuleType) -> None:
        first, _ = functions.arranged("dense", "torch")
        second, _ = functions.arranged("dense", "torch")
        first.fill_(5)
        assert second[0, 1] == 1

    def test_an_unknown_framework(self, functions: ModuleType) -> None:
        with pytest.raises(ferry.FerryError) as caught:
            functions.arranged("dense", "nunpy")
        assert caught.value.hint

    def test_bfloat16_of_numpy(self, functions: ModuleType) -> None:
        x = np.array([1.5, -2], ml_dtypes.bfloat16)
        result, is_copied = functions.cast(x, "bfloat16")
        assert not is_copied
        assert result.dtype == x.dtype
        assert result.tolist() == x.tolist()

    def test_the_framework_of_other_objects_is_numpy(self, functions: ModuleType) -> None:
        result, _ = functions.cast(bytearray(b"\1\2"), "float32")
        check_tensor("numpy", result, np.array([1, 2], "float32"))


def test_results_are_freed_with_their_tensor(functions: ModuleType) -> None:
    """The memory of an array is 16 MiB, and a leak of each would be 4 GiB."""
    x = np.ones(1 << 22, "float32")
    before = sys.getrefcount(x)
    limit = peak_bytes() + (1 << 30)
    for _ in range(256):
        functions.add(x, x)
    assert peak_bytes() < limit
    assert sys.getrefcount(x) == before
    assert NAMED["float32"].size * x.size == 16 << 20


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
