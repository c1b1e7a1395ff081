"""The compiled functions for sparse tensors, called with what no caller in the package passes."""

import numpy as np
import pytest
import torch
from support import sparse_cases as cases

import tensorferry as ferry
from tensorferry import _native, sparse
from tensorferry.sparse import gpu, work

FEW = np.array([0, 2, 1])
ONES = np.ones(3)
WILD = {"int32": [-1, -(2**31), 2**31 - 1, 50], "int64": [-1, -(2**63), 2**63 - 1, 2**40]}
# The first has the number of pointers overflow, and so does the last of 64 signed bits.
MANY = [2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, 2**62]


@pytest.mark.parametrize("rows", MANY)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_more_rows_than_there_can_be(rows, index):
    for call in (
        lambda: _native._sparse_pointers(FEW, rows, index),
        lambda: _native._sparse_turn_coordinates(FEW, FEW, ONES, rows, index),
        lambda: _native._sparse_turn_compressed(FEW[[0, 1]], FEW, ONES, rows, index),
    ):
        with pytest.raises(ferry.FerryError, match=r"rows|overflows|memory"):
            call()


@pytest.mark.parametrize("count", [2**64 - 1, 2**63, 2**62])
def test_more_elements_than_there_can_be(count):
    with pytest.raises(ferry.FerryError, match=r"negative|overflows|memory"):
        _native._sparse_expand(FEW, count)


def test_sequences_that_say_they_are_long():
    """No memory is asked for on the word of a sequence: without it the process would end."""
    endless = range(10**15)
    with pytest.raises(ferry.NotATensorError):
        _native._sparse_lay(endless, "apart", 2, "axes", "int64")
    for call in (
        lambda: _native._SparseOrder((FEW,), "apart", endless),
        lambda: _native._sparse_look_coordinates(None, (FEW,), "apart", endless, False),
        lambda: _native._sparse_dense_coordinates((FEW,), "apart", 1, ONES, endless, True),
    ):
        with pytest.raises(ferry.InvalidArgumentError, match="at most 64 axes"):
            call()


@pytest.mark.parametrize(("index", "wild"), [(key, wild) for key in WILD for wild in WILD[key]])
def test_indices_out_of_bounds(index, wild):
    """More than a thread is woken for; nothing that was never written comes back."""
    count = 400_000
    places = (np.arange(count) % 50).astype(index)
    broken = places.copy()
    broken[::7] = wild
    values = np.ones(count)
    for groups, others in ((broken, places), (broken[::-1], places[::-1])):
        with pytest.raises(ferry.InvalidTensorError, match="out of bounds"):
            _native._sparse_turn_coordinates(groups, others, values, 50, index)
    with pytest.raises(ferry.InvalidTensorError, match="out of bounds"):
        _native._sparse_turn_compressed(np.array([0, count]), broken, values, 50, index)
    kept = np.zeros((50, 50))
    inside = (broken >= 0) & (broken < 50)
    np.add.at(kept, (broken[inside], places[inside]), 1)
    found = _native._sparse_dense_coordinates((broken, places), "apart", 2, values, (50, 50), True)
    assert found.tolist() == kept.tolist()
    pointers = _native._sparse_pointers(broken, 50, index)
    assert pointers.min() >= 0
    assert pointers.max() <= count
    order = _native._SparseOrder((broken, places), "apart", (50, 50))
    assert sorted(order.pick(np.arange(count)).tolist()) == list(range(count))


def test_arrays_without_elements_that_lie_nowhere():
    nowhere = torch.empty((2, 0), dtype=torch.int64)
    assert nowhere.data_ptr() == 0
    look = _native._sparse_look_coordinates(None, (nowhere,), "axes", (3, 3), False)
    assert look[:4] == (0, 0, 0, 0)
    assert _native._sparse_lay((nowhere,), "axes", 2, "points", "int64").shape == (0, 2)
    indptr, others, values = _native._sparse_turn_coordinates(*nowhere, torch.empty(0), 3, "int64")
    assert (indptr.tolist(), others.size, values.size) == ([0] * 4, 0, 0)
    assert _native._SparseOrder((nowhere,), "axes", (3, 3)).places == 0


DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("dtype", DTYPES)
def test_minus_zero_stays_where_others_are_summed(dtype):
    places = np.array([2, 0, 1, 0, 1])
    values = np.array([-0.0, 1, -0.0, 2, -0.0], "float32").astype(cases.dtype_of(dtype))
    given = {work.Host("cpu"): (places, values)}
    given[gpu.Torch("cpu")] = (torch.from_numpy(places), cases.torch_of(values))
    for worker, (where, what) in given.items():
        found = as_numpy(worker.order([where], "apart", [3]).sum(what))
        assert found.dtype == values.dtype
        assert found.astype("complex64").real.tolist() == [3, 0, 0]
        real = found.real if dtype.startswith("complex") else found
        assert np.signbit(real).tolist() == [False, True, True]


def as_numpy(array):
    return cases.plain(array) if isinstance(array, torch.Tensor) else array


def test_no_elements_have_the_type_that_the_plan_says():
    x = cases.make("scipy csr", "empty", "float32", "int32")
    assert sparse.plan(x, "sparse").parts[1].dtype == "int32"
    assert sparse.to(x, "sparse").coords.dtype == np.int32
