"""What plans say: which parts, what is done to them and why, and which format is the nearest."""

import html

import pytest
import scipy
import scipy.sparse
import tensorflow as tf
import torch
from support import sparse_cases as cases

from tensorferry import sparse


@pytest.mark.parametrize(
    ("source", "framework", "form"),
    [
        ("scipy csc", "jax", "coo"),
        ("scipy bsr", "jax", "csr"),
        ("torch bsr", "tensorflow", "coo"),
        ("torch csr", "sparse", "coo"),
        ("torch csc", "scipy", "csc"),
        ("scipy bsr_matrix", "torch", "bsr"),
        ("jax csr", "torch", "csr"),
    ],
)
def test_the_nearest_format(source, framework, form):
    x = cases.make(source, "plain")
    assert sparse.plan(x, framework).format == form
    result = sparse.to(x, framework)
    assert cases.arrays(result)[0] == form
    assert cases.stored(result) == cases.expected(cases.stored(x), f"{framework} {form}", "float32")


def test_arrays_and_matrices_of_scipy():
    matrix = cases.make("scipy csr_matrix", "plain")
    array = cases.make("scipy csr", "plain")
    assert isinstance(sparse.to(matrix, "scipy", format="csc"), scipy.sparse.csc_matrix)
    assert isinstance(sparse.to(array, "scipy", format="csc"), scipy.sparse.csc_array)
    assert isinstance(sparse.to(array, "scipy", format="csr_matrix"), scipy.sparse.csr_matrix)
    assert isinstance(sparse.to(matrix, "scipy", format="csr_array"), scipy.sparse.csr_array)
    t = sparse.to(matrix, "torch")
    assert isinstance(sparse.to(t, "scipy"), scipy.sparse.csr_array)
    assert isinstance(sparse.to(t, "scipy", format="csr_matrix"), scipy.sparse.csr_matrix)


def test_frameworks_by_any_name():
    x = cases.make("torch coo", "plain")
    for name in ("scipy", "scipy.sparse", scipy, scipy.sparse):
        assert isinstance(sparse.to(x, name), scipy.sparse.coo_array)
    for name in ("tf", tf, tf.sparse, "tensorflow"):
        assert isinstance(sparse.to(x, name), tf.sparse.SparseTensor)
    assert sparse.to(x, torch) is x


def test_a_plan_in_words():
    x = cases.make("scipy coo", "both", "float32", "int32")
    assert str(sparse.plan(x, "tensorflow")) == "\n".join(
        (
            "scipy coo -> tensorflow coo: copied, 60 bytes",
            "  float32 of shape (3, 4), 5 stored elements",
            "  values (float32, (3,)): copied, 12 bytes",
            "    1. sort: the elements are not sorted; TensorFlow's operations need sorted, "
            "unique coordinates",
            "    2. sum: 2 duplicates summed in the source's type; TensorFlow's operations need "
            "sorted, unique coordinates",
            "  coordinates (int64, (3, 2)): copied, 48 bytes",
            "    1. sort: the elements are not sorted; TensorFlow's operations need sorted, "
            "unique coordinates",
            "    2. sum: 2 duplicates summed in the source's type; TensorFlow's operations need "
            "sorted, unique coordinates",
            "    3. arrange: the coordinates are stored as one array per axis, and TensorFlow "
            "needs them as one array with a row per element",
            "    4. cast: TensorFlow stores these indices as int64, and they are int32",
            "  note: the elements are sorted and their coordinates unique, and the result is "
            "flagged so",
        )
    )


def test_shared_plans_and_itself():
    x = cases.make("scipy csr", "plain")
    told = sparse.plan(x, "torch")
    assert told.action == "share"
    assert told.shares
    assert repr(told) == "<Plan scipy csr -> torch csr: shared, no byte moves>"
    assert "source and result are the same memory" in str(told)
    itself = sparse.plan(x, "scipy")
    assert itself.action == "itself"
    assert "nothing to do" in str(itself)
    assert sparse.to(x, "scipy") is x


def test_plans_for_programs_and_notebooks():
    told = sparse.plan(cases.make("torch csr", "plain"), "sparse", dtype="float64")
    found = told.as_dict()
    assert found["parts"][0]["name"] == "values"
    assert found["parts"][0]["steps"][0]["kind"] == "cast"
    assert (found["source_dtype"], found["dtype"]) == ("float32", "float64")
    assert found["bytes_moved"] == sum(part["bytes_moved"] for part in found["parts"]) > 0
    assert found["shape"] == [3, 4]
    page = html.unescape(told._repr_html_())
    for part in told.parts:
        assert part.name in page
        assert all(reason in page for _, reason in part.steps)
    assert all(note in page for note in told.notes)
    assert "torch csr → sparse" in page


def test_blocks_are_counted_by_element():
    assert sparse.plan(cases.make("scipy bsr", "plain"), "torch").nnz == 8


def test_a_plan_moves_nothing():
    x = cases.make("scipy coo", "both")
    before = cases.stored(x)
    addresses = [axis.ctypes.data for axis in x.coords]
    for framework in ("torch", "tensorflow", "sparse", "jax"):
        sparse.plan(x, framework)
    assert cases.stored(x) == before
    assert [axis.ctypes.data for axis in x.coords] == addresses
    assert not x.has_canonical_format
