"""Which arrays are the same memory, seen by writing through them, and who may write them."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sparse as pydata
import torch
from jax.experimental import sparse as jax_sparse
from support import sparse_cases as cases
from support import subprocesses
from support.introspect import x64

import tensorferry as ferry
from tensorferry import _native, sparse


def seated(array):
    """The same numbers where every framework can share them."""
    made = ferry.empty_aligned(array.shape, array.dtype)
    made[...] = array
    return made


def seated_csr(index="int32"):
    x = cases.make("scipy csr", "plain", "float32", index)
    x.data, x.indices, x.indptr = seated(x.data), seated(x.indices), seated(x.indptr)
    return x


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_compressed_formats_are_one_memory_in_scipy_and_torch(form, index):
    x = cases.make(f"scipy {form}", "plain", "float32", index)
    t = sparse.to(x, "torch", copy=False)
    t.values()[0] = 42
    assert x.data.reshape(-1)[:2].max() == 42
    assert np.shares_memory(x.indices, cases.arrays(t)[2][1])
    assert np.shares_memory(x.indptr, cases.arrays(t)[2][0])
    back = sparse.to(t, "scipy", copy=False)
    back.data[...] = 7
    assert (x.data == 7).all()
    assert back.indices.dtype == index


def test_compressed_rows_are_one_memory_in_jax():
    x = seated_csr()
    j = sparse.to(x, "jax", copy=False)
    for made, given in (
        (j.data, x.data),
        (j.indices, x.indices),
        (j.indptr, x.indptr),
    ):
        assert made.unsafe_buffer_pointer() == given.ctypes.data
    back = sparse.to(j, "scipy", copy=False)
    assert not back.data.flags.writeable
    assert np.shares_memory(back.data, x.data)


def test_coordinates_are_one_memory_where_they_lie_alike():
    t = cases.make("torch coo", "plain").coalesce()
    p = sparse.to(t, "sparse", copy=False)
    assert p.coords.ctypes.data == t.indices().data_ptr()
    p.data[0] = 42
    assert t.values()[0] == 42
    s = sparse.to(t, "scipy", copy=False)
    assert [axis.ctypes.data for axis in s.coords] == [row.data_ptr() for row in t.indices()]
    again = sparse.to(p, "torch", copy=False)
    assert again.indices().data_ptr() == t.indices().data_ptr()


def test_points_are_strided_columns_for_scipy():
    f = cases.make("tensorflow coo", "plain")
    s = sparse.to(f, "scipy", copy=False)
    assert np.shares_memory(s.coords[1], f.indices._numpy())
    assert s.tocsr().toarray().tolist() == cases.dense(cases.stored(f), (3, 4), "float32").tolist()


def test_jax_and_tensorflow_share_values_and_with_x64_coordinates():
    with x64(True):
        places = jnp.asarray(np.array([[0, 1], [2, 3]], "int64"))
        j = jax_sparse.BCOO((jnp.asarray(np.array([1.0, 2.0])), places), shape=(3, 4))
        f = sparse.to(j, "tensorflow", copy=False)
        assert f.indices._numpy().ctypes.data == places.unsafe_buffer_pointer()
        back = sparse.to(f, "jax", copy=False)
        assert back.indices.unsafe_buffer_pointer() == places.unsafe_buffer_pointer()
        assert back.indices_sorted
        assert back.unique_indices


def test_what_is_grouped_by_rows_needs_only_pointers():
    x = cases.make("scipy coo", "duplicates")
    r = sparse.to(x, "scipy", format="csr")
    assert np.shares_memory(r.data, x.data)
    assert np.shares_memory(r.indices, x.coords[1])
    told = sparse.plan(x, "scipy", format="csr")
    assert [(part.name, part.shares) for part in told.parts] == [
        ("values", True),
        ("indptr", False),
        ("indices", True),
    ]
    assert told.bytes_moved == 16


def test_torch_gets_dense_coordinates_in_memory():
    """PyTorch misreads strided ones when it compresses them."""
    x = cases.make("tensorflow coo", "plain")
    t = sparse.to(x, "torch")
    assert t._indices().is_contiguous()
    assert t.to_sparse_csr().to_dense().tolist() == t.to_dense().tolist()
    strided = pydata.COO(
        np.asfortranarray(np.array([[0, 1, 2], [1, 0, 2]])),
        np.ones(3, "float32"),
        shape=(3, 4),
        has_duplicates=False,
        sorted=True,
    )
    if not strided.coords.flags.c_contiguous:
        told = sparse.plan(strided, "torch")
        assert told.parts[1].steps[0][0] == "pack"
    assert sparse.to(strided, "torch")._indices().is_contiguous()


def test_strided_parts_are_packed_for_torch():
    x = cases.make("scipy csr", "plain")
    x.data, x.indices = np.repeat(x.data, 2)[::2], np.repeat(x.indices, 2)[::2]
    told = sparse.plan(x, "torch")
    assert [part.name for part in told.parts if not part.shares] == ["values", "indices"]
    t = sparse.to(x, "torch")
    assert t.values().is_contiguous()
    assert t.col_indices().is_contiguous()
    assert cases.stored(t) == cases.stored(x)
    with pytest.raises(ferry.CopyRequiredError, match="copy of the values: strided"):
        sparse.to(x, "torch", copy=False)


def test_read_only_parts_stay_read_only():
    x = cases.make("scipy csr", "plain")
    x.data.flags.writeable = False
    assert not sparse.to(x, "scipy", format="coo").data.flags.writeable
    told = sparse.plan(x, "torch")
    assert [part.shares for part in told.parts] == [False, True, True]
    t = sparse.to(x, "torch")
    t.values()[0] = 42
    assert 42 not in x.data
    with pytest.raises(
        ferry.CopyRequiredError, match="copy of the values: the source is read-only"
    ):
        sparse.to(x, "torch", copy=False)


def test_writable_results_harm_nobody():
    j = cases.make("jax csr", "plain")
    s = sparse.to(j, "scipy", writable=True)
    s.data[:] = 9
    assert np.asarray(j.data).tolist() == [1, 2, 3, 4]
    with pytest.raises(ferry.InvalidArgumentError, match="immutable"):
        sparse.to(s, "jax", writable=True)


def test_leaves_are_carried_detached_and_other_tensors_are_frozen():
    leaf = cases.make("torch csr", "plain").requires_grad_()
    s = sparse.to(leaf, "scipy")
    assert s.data.flags.writeable
    told = sparse.plan(leaf, "scipy")
    assert any("detached: no gradient flows back through it" in note for note in told.notes)
    result = leaf * 2
    assert result.requires_grad
    s = sparse.to(result, "scipy")
    assert np.shares_memory(s.data, result.detach().values().numpy())
    assert not s.data.flags.writeable
    assert sparse.to(result, "scipy", writable=True).data.flags.writeable
    t = sparse.to(result, "torch", format="coo")
    assert not t.requires_grad
    assert t._values().data_ptr() != result.detach().values().data_ptr()
    assert sparse.to(result, "torch") is result


def test_what_autograd_needs_is_copied_by_the_engine_for_a_gpu():
    """Arrays of a GPU cannot say that nobody may write them."""
    result = cases.make("torch csr", "plain").requires_grad_() * 2
    _native._sparse_use_framework_engine(True)
    try:
        told = sparse.plan(result, "torch", format="coo")
        made = sparse.to(result, "torch", format="coo")
        leaf = sparse.to(cases.make("torch csr", "plain").requires_grad_(), "torch", format="coo")
    finally:
        _native._sparse_use_framework_engine(False)
    assert not told.parts[0].shares
    assert made._values().data_ptr() != result.detach().values().data_ptr()
    assert cases.stored(made) == cases.stored(result.detach())
    assert not leaf.requires_grad


def test_results_keep_the_memory_alive():
    def made():
        return sparse.to(cases.make("scipy csr", "plain"), "torch")

    t = made()
    filler = [np.full(4, 99, "float32") for _ in range(100)]
    assert t.values().tolist() == [1, 2, 3, 4]
    del filler


def test_a_tensor_is_one_trip_with_its_arrays_as_parts():
    x = cases.make("scipy csr", "plain")
    told = sparse.plan(x, "torch")
    with ferry.trace() as trips:
        sparse.to(x, "torch")
    assert [trip.plan.as_dict() for trip in trips] == [told.as_dict()]
    assert len(trips[0].plan.parts) == 3
    assert trips[0].bytes_moved == told.bytes_moved == 0


def test_nothing_is_imported_to_recognise_a_tensor():
    subprocesses.run_program("sparse_tensors/recognise_without_imports.py")


def test_what_is_sparse():
    for kind in cases.SOURCES:
        assert sparse.is_sparse(cases.make(kind, "plain"))
    assert sparse.is_sparse(scipy.sparse.eye_array(3, format="dia"))
    assert sparse.is_sparse(torch.eye(2).to_sparse_bsc((1, 1)))
    for x in (np.eye(2), torch.eye(2), jnp.eye(2), 3, "torch", None, {}):
        assert not sparse.is_sparse(x)
