"""The engine for the host and the engine for a GPU, which runs on host tensors here."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sparse as pydata
import torch
from jax.experimental import sparse as jax_sparse
from support import sparse_cases as cases
from support.dtypes import NAMED
from support.introspect import has_dtype

import tensorferry as ferry
from tensorferry import _native, sparse
from tensorferry.sparse import gpu_functions, gpu_sorting


@pytest.fixture
def framework_engine():
    """Has PyTorch's functions do the work, as on a GPU."""
    _native._sparse_use_framework_engine(True)
    yield
    _native._sparse_use_framework_engine(False)


def options(form):
    return {"blocksize": cases.BLOCK} if form == "bsr" else {}


@pytest.mark.parametrize("source", cases.SOURCES)
def test_both_engines_follow_the_same_plan(source):
    for target in cases.TARGETS:
        framework, form = target.split()
        for case in cases.CASES:
            x = cases.make(source, case)
            found = []
            for is_on in (False, True):
                _native._sparse_use_framework_engine(is_on)
                try:
                    told = sparse.plan(x, framework, format=form, **options(form))
                    made = sparse.to(x, framework, format=form, **options(form))
                finally:
                    _native._sparse_use_framework_engine(False)
                # Why an array is shared or copied depends on who holds it; how it is made does not.
                parts = [
                    (part.name, part.dtype, part.shape, [k for k, _ in part.steps if k != "copy"])
                    for part in told.parts
                ]
                found.append((told.format, parts, cases.stored(made), type(made)))
            assert found[0] == found[1], (target, case)


@pytest.mark.parametrize("source", cases.SOURCES)
def test_the_engine_for_a_gpu_gives_what_is_expected(source, framework_engine):
    for target in cases.TARGETS:
        framework, form = target.split()
        for case in ("both", "plain", "empty", "no rows"):
            x = cases.make(source, case)
            result = sparse.to(x, framework, format=form, **options(form))
            if source != target:
                wanted = cases.expected(cases.stored(x), target, "float32")
                assert cases.stored(result) == wanted


def padded():
    values = jnp.asarray(np.array([1, 2, 0, 4, 0], "float32"))
    points = jnp.asarray(np.array([[1, 1], [0, 2], [2, 3], [1, 1], [2, 3]], "int32"))
    return jax_sparse.BCOO((values, points), shape=(2, 3))


@pytest.mark.parametrize("is_framework", [False, True])
def test_padding_duplicates_and_disorder_together(is_framework):
    _native._sparse_use_framework_engine(is_framework)
    try:
        kept = [((1, 1), 1.0), ((0, 2), 2.0), ((1, 1), 4.0)]
        summed = [((0, 2), 2.0), ((1, 1), 5.0)]
        assert cases.stored(sparse.to(padded(), "scipy")) == kept
        assert cases.stored(sparse.to(padded(), "scipy", format="csr")) == [
            kept[1],
            kept[0],
            kept[2],
        ]
        for target in ("tensorflow", "sparse"):
            assert cases.stored(sparse.to(padded(), target)) == summed
        assert cases.stored(sparse.to(padded(), "torch", format="csr")) == summed
        blocks = sparse.to(padded(), "scipy", format="bsr", blocksize=(1, 3))
        assert blocks.toarray().tolist() == [[0, 0, 2], [0, 5, 0]]
        assert sparse.to_dense(padded(), "numpy").tolist() == [[0, 0, 2], [0, 5, 0]]
    finally:
        _native._sparse_use_framework_engine(False)


@pytest.mark.parametrize("is_framework", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_minus_zero_stays_where_others_are_summed(dtype, is_framework):
    points = torch.tensor([[2, 0, 1, 0], [0, 0, 1, 0]])
    values = torch.tensor([-0.0, 1, -0.0, 2]).to(getattr(torch, dtype))
    x = torch.sparse_coo_tensor(points, values, (3, 2), check_invariants=True)
    _native._sparse_use_framework_engine(is_framework)
    try:
        for form in ("csr", "csc"):
            found = sparse.to(x, "torch", format=form).values().clone()
            assert found.real.tolist() == [3, 0, 0]
            assert torch.signbit(found.real).sum() == 2
        blocks = sparse.to(x, "torch", format="bsr", blocksize=(1, 1)).values().clone()
        assert torch.signbit(blocks.real).sum() == 2
    finally:
        _native._sparse_use_framework_engine(False)


SMALL = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
# PyTorch has DLPack types for some of them in newer versions only.
SMALL_IN_TORCH = [name for name in SMALL if has_dtype("torch", NAMED[name])]


@pytest.mark.parametrize(
    "dtype", [*SMALL_IN_TORCH, "int8", "uint8", "int16", "bool", "float16", "bfloat16"]
)
def test_duplicates_of_every_type_are_summed_as_numpy_sums_them(dtype):
    random = np.random.default_rng(7)
    points = random.integers(0, 4, (2, 60))
    values = random.integers(0, 3, 60).astype("float32").astype(ferry_dtype(dtype))
    wanted = np.zeros((4, 4), values.dtype)
    np.add.at(wanted, tuple(points), values)
    given = ferry.to(values, "torch")
    x = torch.sparse_coo_tensor(torch.from_numpy(points), given, (4, 4), check_invariants=False)
    for made in (
        sparse.to_dense(x, "numpy"),
        sparse.to_dense(sparse.to(x, "torch", format="csr"), "numpy"),
    ):
        assert made.dtype == values.dtype
        assert made.astype("float32").tolist() == wanted.astype("float32").tolist()


def ferry_dtype(name):
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("most", [1, 5, 2**31 - 1, 2**62])
def test_sorts_are_stable(most, framework_engine):
    keys = np.random.default_rng(0).integers(0, most, 999, endpoint=True)
    keys[500:] = keys[:499]
    order = gpu_sorting.SortedElements(
        gpu_functions.TorchFunctions("cpu"), [torch.from_numpy(keys)]
    )
    numbers = torch.arange(999)
    assert order.pick(numbers).tolist() == sorted(range(999), key=lambda place: keys[place])
    firsts = order.pick(torch.from_numpy(keys), True).tolist()
    assert firsts == sorted(set(keys.tolist()))
    wanted = [sum(i for i in range(999) if keys[i] == place) for place in firsts[:9]]
    assert order.sum(numbers).tolist()[:9] == wanted


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_large_ones_agree_with_scipy(form, index):
    """Enough elements for several threads, with duplicates and in no order."""
    random = np.random.default_rng(5)
    count, shape = 300_000, (700, 900)
    points = tuple(random.integers(0, length, count).astype(index) for length in shape)
    values = random.integers(-9, 9, count).astype("float64")
    x = scipy.sparse.coo_array((values, points), shape=shape)
    x = x if form == "coo" else scipy.sparse.coo_array(x).asformat(form)
    wanted = x.toarray()
    for target in cases.TARGETS:
        framework, to = target.split()
        options = {"blocksize": (7, 9)} if to == "bsr" else {}
        made = sparse.to(x, framework, format=to, dtype="float32", **options)
        assert (sparse.to_dense(made, "numpy") == wanted).all(), target
    assert (sparse.to_dense(x, "numpy") == wanted).all()


def test_indices_that_change_during_the_call_are_no_crash():
    """Kernels count on validated indices, and stay within bounds where somebody writes them."""
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2))
    x._indices()[0, 0] = 2**40
    for verb in (sparse.to, sparse.to_dense):
        with pytest.raises(ferry.InvalidTensorError, match=f"coordinate {2**40} is out of bounds"):
            verb(x, "scipy" if verb is sparse.to else "numpy")


def test_arrays_without_elements_that_lie_nowhere():
    nowhere = torch.empty((2, 0), dtype=torch.int64)
    assert nowhere.data_ptr() == 0
    x = torch.sparse_coo_tensor(nowhere, torch.empty(0), (3, 3), check_invariants=True)
    for target in cases.TARGETS:
        framework, form = target.split()
        options = {"blocksize": (3, 3)} if form == "bsr" else {}
        assert cases.stored(sparse.to(x, framework, format=form, **options)) == []


def test_no_elements_have_the_type_that_the_plan_says():
    x = cases.make("scipy csr", "empty", "float32", "int32")
    assert sparse.plan(x, "sparse").parts[1].dtype == "int32"
    assert sparse.to(x, "sparse").coords.dtype == np.int32


def test_lines_of_a_matrix_are_shared():
    """Those of NumPy are views; JAX and TensorFlow would make copies of them."""
    for source in ("jax coo", "tensorflow coo"):
        x = cases.make(source, "plain")
        made = sparse.to(x, "scipy", format="csr")
        assert sparse.plan(x, "scipy", format="csr").parts[2].shares
        assert np.shares_memory(made.indices, cases.arrays(x)[2][1])


@pytest.mark.parametrize("index", ["uint8", "uint16", "int8", "int16", "uint32"])
def test_indices_of_other_types_become_one_that_the_target_takes(index):
    x = cases.make("scipy coo", "both")
    x.coords = tuple(axis.astype(index) for axis in x.coords)
    for target in cases.TARGETS:
        framework, form = target.split()
        made = sparse.to(x, framework, format=form, **options(form))
        if target == "scipy coo":
            assert made is x
            continue
        assert cases.stored(made) == cases.expected(cases.stored(x), target, "float32")
        assert cases.arrays(made)[2][0].dtype in ("int32", "int64")


def test_strided_blocks_become_single_elements():
    x = cases.make("scipy bsr", "plain")
    x.data = np.repeat(x.data, 2, axis=2)[:, :, ::2]
    assert not x.data.flags.c_contiguous
    told = sparse.plan(x, "scipy", format="coo")
    assert told.parts[0].steps[0][0] == "pack"
    made = sparse.to(x, "scipy", format="coo")
    assert made.toarray().tolist() == x.toarray().tolist()
    with pytest.raises(ferry.CopyRequiredError, match="copy of the values: strided"):
        sparse.to(x, "scipy", format="coo", copy=False)


def test_three_axes_in_every_order():
    random = np.random.default_rng(2)
    points = random.integers(0, 5, (3, 50))
    values = random.integers(1, 9, 50).astype("float32")
    t = torch.sparse_coo_tensor(torch.from_numpy(points), torch.from_numpy(values), (5, 5, 5))
    wanted = t.to_dense().tolist()
    for framework in ("scipy", "jax", "tensorflow", "sparse"):
        assert sparse.to_dense(sparse.to(t, framework), "numpy").tolist() == wanted
    assert isinstance(sparse.to(t, "sparse"), pydata.COO)


@pytest.mark.parametrize("index", ["uint8", "uint16", "uint32"])
def test_unsigned_indices_of_jax_by_the_engine_for_a_gpu(index, framework_engine):
    points = jnp.asarray(np.array([[1, 2], [0, 3]], index))
    x = jax_sparse.BCOO((jnp.asarray([5.0, 6.0]), points), shape=(4, 6))
    wanted = [((0, 3), 6.0), ((1, 2), 5.0)]
    assert cases.stored(sparse.to(x, "torch", format="csr")) == wanted


def test_a_single_element_by_the_engine_for_a_gpu(framework_engine):
    x = jax_sparse.BCOO((jnp.asarray([5.0]), jnp.asarray([[1, 2]])), shape=(4, 6))
    for form in ("csr", "csc"):
        made = sparse.to(x, "torch", format=form)
        assert cases.arrays(made)[2][1].strides == (4,)
        assert cases.stored(made) == [((1, 2), 5.0)]


@pytest.mark.parametrize("is_framework", [False, True])
def test_transposed_blocks_are_packed_as_the_plan_says(is_framework):
    values = torch.arange(4.0).reshape(1, 2, 2).transpose(1, 2)
    parts = (torch.tensor([0, 1]), torch.tensor([0]), values)
    x = torch.sparse_compressed_tensor(*parts, (2, 2), layout=torch.sparse_bsr)
    _native._sparse_use_framework_engine(is_framework)
    try:
        told = sparse.plan(x, "torch", format="csr")
        made = sparse.to(x, "torch", format="csr")
        with pytest.raises(ferry.CopyRequiredError, match="copy of the values: strided"):
            sparse.to(x, "torch", format="csr", copy=False)
    finally:
        _native._sparse_use_framework_engine(False)
    assert [kind for kind, _ in told.parts[0].steps] == ["pack"]
    assert made.to_dense().tolist() == x.to_dense().tolist()
