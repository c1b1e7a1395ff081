"""`take` of the C table: every source of the matrix, every request, and what it refuses."""

from __future__ import annotations

import ctypes
import gc

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from matrix.cells import Cell
from matrix.check import Failures
from matrix.constructors import dtypes_of, make, pairs_of_source_and_case
from support import c_table
from support.c_table import ANY, CUDA, C, F, take
from support.capsules import dense_strides
from support.dtypes import FLOAT32, NAMED, significant

import tensorferry as ferry

import tensorflow as tf  # isort: skip

FLOAT64, INT32, BOOL = NAMED["float64"], NAMED["int32"], NAMED["bool"]


def is_relevant(cell: Cell, strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of dimensions with more than one element."""
    shape = cell.facts.shape
    return tuple(step for step, length in zip(strides, shape, strict=True) if length > 1)


def shares(cell: Cell, order: int) -> bool:
    """Whether the memory meets the request as it is, by the rules of the header."""
    facts, size = cell.facts, cell.facts.dtype.size
    if facts.pending or facts.swapped or facts.reused:
        return False
    if facts.count == 0:
        return True
    if facts.address % size or any(step % size for step in is_relevant(cell, facts.strides)):
        return False
    dense = {
        C: dense_strides(facts.shape, size),
        F: dense_strides(facts.shape[::-1], size)[::-1],
        ANY: facts.strides,
    }
    return is_relevant(cell, facts.strides) == is_relevant(cell, dense[order])


def check_taken(cell: Cell, order: int) -> None:
    """Takes the cell, and compares everything that the struct says."""
    facts = cell.facts
    taken = take(cell.object, order=order)
    assert (taken.managed.major, taken.managed.minor) == (1, 3)
    assert taken.shape == facts.shape
    assert taken.dtype == (facts.dtype.code, facts.dtype.bits, 1)
    assert (taken.tensor.device.kind, taken.tensor.device.index) == (1, 0)
    assert taken.is_copied == (not shares(cell, order)), facts
    values = taken.array(facts.dtype.numpy).tobytes()
    assert significant(facts.dtype, values) == cell.values, "the values changed"
    if taken.is_copied:
        assert not taken.is_read_only
    else:
        assert facts.count == 0 or taken.data == facts.address
        assert taken.is_read_only == (facts.frozen or facts.immutable or facts.snapshot)
    if order in (C, F) and facts.count:
        dense = dense_strides(facts.shape, 1)
        if order == F:
            dense = dense_strides(facts.shape[::-1], 1)[::-1]
        assert is_relevant(cell, taken.strides) == is_relevant(cell, dense)


@pytest.mark.parametrize(
    "order",
    # The orders differ in the layouts that are copied, which a few cases show too (NEEDS_COPY).
    [ANY, *(pytest.param(order, marks=pytest.mark.extensions) for order in (C, F))],
)
@pytest.mark.parametrize(("source", "case"), pairs_of_source_and_case())
def test_cell(source: str, case: str, order: int) -> None:
    failures = Failures()
    for dtype in dtypes_of(source, case):
        with failures.observe(dtype):
            cell = make(source, case, dtype)
            assert cell is not None
            check_taken(cell, order)
    failures.report()


@pytest.mark.parametrize("source", ["numpy", "torch", "paddle", "bytearray"])
def test_writable_memory_is_written_in_place(source: str) -> None:
    dtype = NAMED["uint8"] if source == "bytearray" else FLOAT32
    cell = make(source, "dense", dtype)
    assert cell is not None
    taken = take(cell.object, writable=True)
    assert (taken.data, taken.flags) == (cell.facts.address, 0)
    array = taken.array(dtype.numpy)
    array += 1
    again = take(cell.object).array(dtype.numpy)
    assert np.array_equal(array, again)
    assert significant(dtype, again.tobytes()) != cell.values


def test_a_leaf_that_requires_a_gradient_is_writable() -> None:
    """Optimisers and initialisers write parameters in place."""
    leaf = torch.ones(3, requires_grad=True)
    take(leaf, writable=True).array(np.dtype("float32"))[:] = 2
    assert leaf.tolist() == [2, 2, 2]


def read_only() -> np.ndarray:
    array = np.ones(3)
    array.flags.writeable = False
    return array


NOT_WRITABLE = {
    "read-only": (read_only, "read-only"),
    "bytes": (lambda: b"abc", "read-only"),
    "scalar": (lambda: np.float32(1), "a numpy scalar has no memory of its own"),
    "JAX": (lambda: jnp.ones(3), "tensors of jax are immutable"),
    "TensorFlow": (lambda: tf.constant([1.0, 2.0]), "tensors of tensorflow are immutable"),
    "non-leaf": (lambda: torch.ones(3, requires_grad=True) * 2, "saved for a gradient"),
    "stride 0": (lambda: np.lib.stride_tricks.as_strided(np.ones(3), (3,), (0,)), "overlap"),
    "sliding window": (lambda: torch.ones(8).unfold(0, 4, 1), "overlap"),
}


@pytest.mark.parametrize("name", NOT_WRITABLE)
def test_memory_that_must_not_be_written_is_refused(name: str) -> None:
    make_tensor, fact = NOT_WRITABLE[name]
    with pytest.raises(ferry.InvalidArgumentError, match=fact) as caught:
        take(make_tensor(), writable=True)
    assert caught.value.hint


NEEDS_COPY = {
    "byte-swapped": (lambda: np.ones(3, ">f4"), {}),
    "unaligned": (lambda: np.frombuffer(bytearray(13), "u1")[1:].view("f4"), {}),
    "broken stride": (lambda: np.zeros(3, "i2,f4")["f1"], {}),
    "conjugate": (lambda: torch.ones(3, dtype=torch.complex64).conj(), {}),
    "transposed": (lambda: np.ones((2, 3)).T, {"order": C}),
    "row-major": (lambda: np.ones((2, 3)), {"order": F}),
}


@pytest.mark.parametrize("options", [{"copy_allowed": False}, {"writable": True}])
@pytest.mark.parametrize("name", NEEDS_COPY)
def test_a_copy_that_is_not_allowed_is_refused(name: str, options: dict) -> None:
    make_tensor, layout = NEEDS_COPY[name]
    with pytest.raises(ferry.CopyRequiredError, match="to an extension needs a copy") as caught:
        take(make_tensor(), **options, **layout)
    assert caught.value.hint is not None
    assert "copy=False" not in caught.value.hint
    assert take(make_tensor(), **layout).is_copied


def test_another_element_type_is_an_error_and_no_cast() -> None:
    with pytest.raises(
        ferry.UnsupportedDTypeError, match="accepts float32, int32, and the"
    ) as caught:
        take(torch.ones(3, dtype=torch.float64), dtypes=[FLOAT32, INT32])
    assert isinstance(caught.value, TypeError)
    assert caught.value.hint == 'pass ferry.to(x, "torch", dtype="float32")'
    assert take(np.ones(3, "i4"), dtypes=[FLOAT32, INT32]).dtype == (0, 32, 1)


def test_a_type_that_only_dlpack_has_can_be_named() -> None:
    wanted = c_table.request(dtypes=[FLOAT32])
    wanted.dtypes[0].lanes = 4
    with pytest.raises(ferry.UnsupportedDTypeError, match=r"code 2, 32 bits, 4 lanes"):
        take(np.ones(3, "f4"), wanted)


def test_another_device_is_an_error_and_no_transfer() -> None:
    with pytest.raises(ferry.UnsupportedError, match="accepts tensors on cuda:0") as caught:
        take(torch.ones(3), device=(CUDA, 0))
    assert caught.value.hint == 'pass ferry.to(x, "torch", device="cuda:0")'
    with pytest.raises(ferry.UnsupportedError) as caught:
        take(np.ones(3), device=(CUDA, 0))
    assert caught.value.hint == 'pass ferry.to(x, "torch", device="cuda:0")'
    with pytest.raises(ferry.UnsupportedError, match="unknown type 99"):
        take(np.ones(3), device=(99, 0))
    assert take(torch.ones(3), device=(c_table.CPU, 0)).shape == (3,)


def test_another_rank_is_an_error() -> None:
    with pytest.raises(
        ferry.UnsupportedError, match=r"rank 2, and the tensor has rank 1: shape \[3\]"
    ):
        take(np.ones(3), rank=2)
    assert take(np.ones((3, 1)), rank=2).shape == (3, 1)
    assert take(np.float32(3), rank=0).shape == ()


@pytest.mark.parametrize("x", [1, "text", None, [1, 2], {"w": np.ones(3)}, object()])
def test_an_object_that_is_not_a_tensor_is_refused(x: object) -> None:
    with pytest.raises(ferry.NotATensorError):
        take(x)


def test_sparse_and_symbolic_tensors_are_refused() -> None:
    with pytest.raises(ferry.FerryError):
        take(torch.eye(3).to_sparse())
    with pytest.raises(ferry.NotATensorError):
        take(tf.sparse.from_dense(tf.eye(2)))


def test_columns_are_taken() -> None:
    import pandas as pd
    import pyarrow as pa

    for column in (pd.Series([1.0, 2.0]), pa.array([1.0, 2.0])):
        assert take(column).array(np.dtype("float64")).tolist() == [1, 2]
    chunks = pa.chunked_array([[1.0], [2.0]])
    taken = take(chunks)
    assert taken.is_copied
    assert taken.array(np.dtype("float64")).tolist() == [1, 2]
    with pytest.raises(ferry.CopyRequiredError):
        take(chunks, copy_allowed=False)


def test_the_default_request_is_null() -> None:
    address = ctypes.c_void_p()
    assert c_table.api.take(np.ones(3), None, ctypes.byref(address)) == 0
    assert address.value
    assert c_table.Taken(address.value).shape == (3,)


def test_a_request_of_another_version_is_read_by_its_size() -> None:
    class Extended(ctypes.Structure):
        _fields_ = (("known", c_table.Request), ("added", ctypes.c_int64))

    extended = Extended(c_table.request(size=ctypes.sizeof(Extended)))
    address = ctypes.c_void_p()
    take_raw = c_table.api.take
    assert take_raw(np.ones(3), ctypes.addressof(extended), ctypes.byref(address)) == 0
    assert address.value
    c_table.Taken(address.value).release()
    extended.added = 1
    sizes = (
        f"has {ctypes.sizeof(Extended)} bytes, and this tensorferry knows {extended.known.size - 8}"
    )
    with pytest.raises(ferry.InvalidArgumentError, match=sizes):
        take_raw(np.ones(3), ctypes.addressof(extended), ctypes.byref(address))
    with pytest.raises(ferry.InvalidArgumentError, match=r"has 16 bytes"):
        take(np.ones(3), size=16)


@pytest.mark.parametrize("fields", [{"order": 3}, {"order": -1}, {"rank": -2}])
def test_an_invalid_request_is_refused(fields: dict) -> None:
    with pytest.raises(ferry.InvalidArgumentError, match="TENSORFERRY_REQUEST_INIT"):
        take(np.ones(3), **fields)


def test_a_missing_list_of_types_is_refused() -> None:
    wanted = c_table.request()
    wanted.dtype_count = 1
    with pytest.raises(ferry.InvalidArgumentError, match="1 element types"):
        take(np.ones(3), wanted)


def test_takes_are_traced() -> None:
    with ferry.trace() as trips:
        take(np.ones(3))
        take(np.ones((2, 3)), order=F)
    assert [(trip.plan.target, trip.shares) for trip in trips] == [
        ("an extension", True),
        ("an extension", False),
    ]


def test_the_memory_lives_until_the_deleter_runs() -> None:
    storage = torch.arange(1000.0)
    taken = take(storage)
    storage.data = torch.zeros(1)
    del storage
    gc.collect()
    assert np.array_equal(taken.array(np.dtype("float32")), np.arange(1000, dtype="f4"))


def test_the_deleter_releases_the_source() -> None:
    import weakref

    array = np.ones(3)
    gone = weakref.ref(array)
    taken = take(array)
    del array
    assert gone() is not None
    taken.release()
    assert gone() is None
