"""The dense tensor of a sparse one, on the host, and by the code that runs on a GPU."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import torch
from jax.experimental import sparse as jax_sparse
from support import sparse_cases as cases

import tensorferry as ferry
from tensorferry import sparse
from tensorferry.sparse.frameworks import jax, tensorflow
from tensorferry.sparse.frameworks import torch as torch_tensors

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")


@pytest.mark.parametrize("source", cases.SOURCES)
def test_every_source_becomes_dense_everywhere(source):
    for case in cases.CASES:
        x = cases.make(source, case)
        wanted = cases.dense(cases.stored(x), x.shape, "float32")
        for framework in FRAMEWORKS:
            if framework == "mlx" and 0 in x.shape:
                continue
            made = sparse.to_dense(x, framework)
            found = ferry.to(made, "numpy")
            assert found.dtype == np.float32
            assert found.tolist() == wanted.tolist()
            assert found.shape == tuple(x.shape)


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_duplicates_are_summed_in_the_type_of_the_source(dtype):
    x = cases.make("torch coo", "both", dtype)
    made = sparse.to_dense(x, "numpy")
    assert made.dtype == cases.dtype_of(dtype)
    assert made.tolist() == cases.dense(cases.stored(x), (3, 4), dtype).tolist()
    shape = (1, 1)
    wraps = cases.make("scipy coo", (shape, [((0, 0), 127), ((0, 0), 1)]), "int8")
    assert sparse.to_dense(wraps, "torch", dtype="int32").tolist() == [[-128]]


def test_it_is_packed_once():
    x = cases.make("scipy csr", "plain")
    for framework in ("torch", "jax", "tensorflow"):
        with ferry.trace() as trips:
            sparse.to_dense(x, framework)
        assert [trip.bytes_moved for trip in trips] == [48]
        assert sparse.plan(x, framework, dense=True).bytes_moved == 48


def test_the_plan_says_what_is_done():
    x = cases.make("scipy csr", "plain")
    told = sparse.plan(x, "torch", dense=True, dtype="float64")
    assert told.format is None
    assert [verb for verb, _ in told.parts[0].steps] == ["scatter", "cast"]
    assert told.bytes_moved == 48 + 96
    assert "scipy csr -> torch dense: copied, 144 bytes" in str(told)
    with pytest.raises(ferry.CopyRequiredError, match="new memory"):
        sparse.to_dense(x, "torch", copy=False)


def test_hybrids_and_batches_become_dense():
    values = torch.arange(6.0).reshape(3, 2)
    t = torch.sparse_coo_tensor([[0, 2, 0]], values, (3, 2), check_invariants=True)
    assert sparse.to_dense(t, "numpy").tolist() == t.to_dense().tolist()
    b = torch.stack([torch.eye(3), 2 * torch.eye(3)]).to_sparse_csr()
    assert sparse.to_dense(b, "jax").tolist() == b.to_dense().tolist()
    j = jax_sparse.BCOO.fromdense(jnp.arange(8.0).reshape(2, 2, 2), n_batch=1)
    assert sparse.to_dense(j, "torch").tolist() == j.todense().tolist()


def test_a_dense_tensor_that_is_too_large_is_refused():
    x = cases.make("scipy coo", ((2**40, 2**20), [((5, 6), 1)]), "float32", "int64")
    with pytest.raises(ferry.OutOfMemoryError, match="cannot be allocated"):
        sparse.to_dense(x, "torch")


SCATTERS = {"torch": torch_tensors.scatter, "jax": jax.scatter, "tensorflow": tensorflow.scatter}


@pytest.mark.parametrize("framework", SCATTERS)
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32", "bool", "bfloat16"])
@pytest.mark.parametrize("case", ["both", "plain", "empty"])
def test_the_scatters_for_a_gpu(framework, dtype, case):
    """The same functions fill a tensor wherever its arrays are."""
    x = cases.make("scipy coo", case, "float32" if dtype == "bfloat16" else dtype)
    values = ferry.to(x.data, framework, dtype=dtype)
    points = np.stack(x.coords).astype("int64" if framework != "jax" else "int32")
    points = points if framework == "torch" else points.T
    coordinates = (ferry.to(np.ascontiguousarray(points), framework),)
    for is_unique in {False, case != "both"}:
        made = SCATTERS[framework](x.shape, values, coordinates, is_unique)
        found = ferry.to(made, "numpy")
        assert found.dtype == cases.dtype_of(dtype)
        assert found.tolist() == cases.dense(cases.stored(x), (3, 4), dtype).tolist()


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "bfloat16", "complex128"])
@pytest.mark.parametrize("count", [5000, 70_000])
def test_large_ones_in_no_order(dtype, count):
    """Grouped first or scattered at once, with duplicates or without, the sums are the same."""
    random = np.random.default_rng(3)
    points = random.integers(0, (40, 70), (count, 2)).T
    values = random.integers(0, 2, count).astype(cases.dtype_of(dtype))
    wanted = np.zeros((40, 70), values.dtype)
    np.add.at(wanted, tuple(points), values)
    given = (torch.from_numpy(points.copy()), ferry.to(values, "torch"), (40, 70))
    x = torch.sparse_coo_tensor(*given, check_invariants=True)
    assert sparse.to_dense(x, "numpy").tolist() == wanted.tolist()


def without_axes():
    nowhere, values = torch.empty((0, 3), dtype=torch.int64), torch.tensor([1.0, 2.0, 4.0])
    return torch.sparse_coo_tensor(nowhere, values, (), check_invariants=True)


def test_a_tensor_without_axes_is_the_sum_of_its_elements():
    assert sparse.to_dense(without_axes(), "numpy") == 7


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_a_tensor_without_axes_is_refused(form):
    with pytest.raises(ferry.UnsupportedError, match="torch coo tensor has no sparse axis"):
        sparse.to(without_axes(), "scipy", format=form)


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_values_with_an_axis_too_many_are_broken(form):
    x = getattr(scipy.sparse, f"{form}_array")(np.eye(3))
    x.data = np.ones((3, 2))
    for target in ("coo", "csr", "csc"):
        with pytest.raises(ferry.InvalidTensorError, match=f"the scipy {form} tensor is invalid"):
            sparse.to(x, "torch", format=target)
    with pytest.raises(ferry.InvalidTensorError, match=f"the scipy {form} tensor is invalid"):
        sparse.to_dense(x, "numpy")


def test_a_large_dense_tensor_with_few_elements_needs_little_memory():
    """Pages that hold no element are never written."""
    x = cases.make("scipy coo", ((2**15, 2**16), [((5, 6), 1), ((2**15 - 1, 2**16 - 1), 2)]))
    made = sparse.to_dense(x, "numpy")
    assert made.nbytes == 2**33
    assert (made[5, 6], made[-1, -1], made[7, 7]) == (1, 2, 0)
