"""Sparse tensors on a GPU: every framework and format to every other, without a way by the host.

Each source is made by its framework's own constructor, and each result is read by its framework's
own attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry

FORMATS = {
    "torch": ("coo", "csr", "csc", "bsr"),
    "cupy": ("coo", "csr", "csc"),
    "jax": ("coo", "csr"),
    "tensorflow": ("coo",),
}
KINDS = [(name, form) for name in FORMATS if name in GPU_FRAMEWORKS for form in FORMATS[name]]
NAMES = [" ".join(kind) for kind in KINDS]
BLOCK = (3, 2)
DTYPES = ("float32", "float64", "complex64")
# Those that keep repeats and an order of their own.
LOOSE = [kind for kind in KINDS if kind[0] != "tensorflow" and kind[1] == "coo"]


def matrix(dtype: str = "float32", seed: int = 0) -> scipy.sparse.coo_array:
    """Random, in order, each place once; its sides are multiples of the blocks'."""
    random = np.random.default_rng(seed)
    found = scipy.sparse.random_array((300, 200), density=0.05, rng=random).tocsr()
    found.sort_indices()
    values = random.standard_normal(found.nnz) + 1j * random.standard_normal(found.nnz)
    values = (values if "complex" in dtype else values.real).astype(dtype)
    found = scipy.sparse.csr_array((values, found.indices, found.indptr), shape=found.shape)
    return found.tocoo()


def make(kind: tuple[str, str], a: scipy.sparse.coo_array) -> Any:
    """The matrix on the GPU, put together by its framework."""
    name, form = kind
    up = GPU_FRAMEWORKS[name].make
    packed = a.tobsr(blocksize=BLOCK) if form == "bsr" else a.asformat(form)
    if form != "coo":
        packed.sort_indices()
        data, index, ends = up(packed.data), up(packed.indices), up(packed.indptr)
    if name == "torch":
        if form == "coo":
            places = up(np.stack(a.coords).astype("int64"))
            return torch.sparse_coo_tensor(places, up(a.data), a.shape, check_invariants=True)
        # Without elements, torch 2.11 takes the indices for strided ones.
        asked = {"layout": getattr(torch, f"sparse_{form}"), "check_invariants": a.nnz > 0}
        return torch.sparse_compressed_tensor(ends, index, data, a.shape, **asked)
    if name == "cupy":
        import cupyx.scipy.sparse

        if form == "coo":
            parts = (up(a.data), tuple(up(c.astype("int32")) for c in a.coords))
            return cupyx.scipy.sparse.coo_matrix(parts, shape=a.shape)
        return getattr(cupyx.scipy.sparse, f"{form}_matrix")((data, index, ends), shape=a.shape)
    if name == "jax":
        from jax.experimental import sparse

        if form == "coo":
            return sparse.BCOO((up(a.data), up(np.stack(a.coords, 1))), shape=a.shape)
        return sparse.BCSR((data, index, ends), shape=a.shape)
    import tensorflow as tf

    return tf.sparse.SparseTensor(up(np.stack(a.coords, 1).astype("int64")), up(a.data), a.shape)


def arrays(x: Any) -> tuple[str, list[Any]]:
    """The format, and the arrays that a tensor is made of, values first."""
    module = type(x).__module__.split(".")[0]
    if module == "torch":
        form = str(x.layout).removeprefix("torch.sparse_")
        if form == "coo":
            return form, [x._values(), x._indices()]
        if form == "csc":
            return form, [x.values(), x.row_indices(), x.ccol_indices()]
        return form, [x.values(), x.col_indices(), x.crow_indices()]
    if module == "cupyx":
        if x.format == "coo":
            return "coo", [x.data, x.row, x.col]
        return x.format, [x.data, x.indices, x.indptr]
    if module == "jax":
        if type(x).__name__ == "BCOO":
            return "coo", [x.data, x.indices]
        return "csr", [x.data, x.indices, x.indptr]
    return "coo", [x.values, x.indices]


def on_host(x: Any, name: str) -> scipy.sparse.sparray:
    """The same, as SciPy's."""
    form, parts = arrays(x)
    data, *rest = (GPU_FRAMEWORKS[name].host(part) for part in parts)
    if form != "coo":
        kind = getattr(scipy.sparse, f"{form}_array")
        return kind((data, rest[0], rest[1]), shape=tuple(x.shape))
    if name == "cupy":
        places = tuple(rest)
    else:
        places = tuple(rest[0]) if name == "torch" else tuple(rest[0].T)
    return scipy.sparse.coo_array((data, places), shape=tuple(x.shape))


def agree(x: Any, name: str, wanted: scipy.sparse.sparray) -> None:
    __tracebackhide__ = True
    assert all(GPU_FRAMEWORKS[name].on_gpu(part) for part in arrays(x)[1])
    found = on_host(x, name)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.toarray(), wanted.toarray())


def options(kind: tuple[str, str]) -> dict[str, Any]:
    return {"format": kind[1], **({"blocksize": BLOCK} if kind[1] == "bsr" else {})}


@pytest.mark.parametrize("target", KINDS, ids=NAMES)
@pytest.mark.parametrize("source", KINDS, ids=NAMES)
def test_every_pair_stays_on_the_gpu(source, target):
    for dtype in DTYPES:
        a = matrix(dtype)
        x = make(source, a)
        told = ferry.sparse.plan(x, target[0], **options(target))
        assert told.device == told.source_device == "cuda:0"
        with ferry.trace() as trips:
            y = ferry.sparse.to(x, target[0], **options(target))
        agree(y, target[0], a)
        assert arrays(y)[0] == target[1]
        assert [trip.plan.as_dict() for trip in trips] == [told.as_dict()]
        assert not any("the host processes" in note for note in told.notes), told
        if source == target:
            assert y is x
            continue
        mine, theirs = GPU_FRAMEWORKS[source[0]].address, GPU_FRAMEWORKS[target[0]].address
        before = {mine(part) for part in arrays(x)[1]}
        assert (theirs(arrays(y)[1][0]) in before) == told.parts[0].shares, "values"
        agree(x, source[0], a)


@pytest.mark.parametrize("target", KINDS, ids=NAMES)
@pytest.mark.parametrize("source", LOOSE, ids=lambda kind: kind[0])
def test_repeats_and_disorder(source, target):
    random = np.random.default_rng(1)
    # Few places, so that many are there twice; whole numbers, so that sums are exact.
    places = tuple(random.integers(0, side, 5000).astype("int32") for side in (30, 20))
    values = random.integers(-99, 99, 5000).astype("float32")
    a = scipy.sparse.coo_array((values, places), shape=(30, 20))
    y = ferry.sparse.to(make(source, a), target[0], **options(target))
    agree(y, target[0], a)
    dense = ferry.sparse.to_dense(make(source, a), target[0])
    assert GPU_FRAMEWORKS[target[0]].on_gpu(dense)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[target[0]].host(dense), a.toarray())


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_between_host_and_gpu(kind):
    a = matrix()
    up = ferry.sparse.to(a.tocsr(), kind[0], device="cuda", **options(kind))
    agree(up, kind[0], a)
    for form in ("csr", "coo", "csc"):
        down = ferry.sparse.to(up, "scipy", format=form)
        assert down.format == form
        np.testing.assert_array_equal(down.toarray(), a.toarray())
    dense = ferry.sparse.to_dense(a.tocsr(), kind[0], device="cuda")
    assert GPU_FRAMEWORKS[kind[0]].on_gpu(dense)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[kind[0]].host(dense), a.toarray())
    there = ferry.sparse.to_dense(up, kind[0], dtype="float64")
    assert GPU_FRAMEWORKS[kind[0]].on_gpu(there)
    np.testing.assert_array_equal(
        GPU_FRAMEWORKS[kind[0]].host(there), a.toarray().astype("float64")
    )
    np.testing.assert_array_equal(ferry.sparse.to_dense(up, "numpy"), a.toarray())


@pytest.mark.parametrize("form", FORMATS["torch"])
def test_late_values_are_waited_for(form):
    """The values are still being written, on a stream of their own, when the trip begins."""
    a, kind = matrix(), ("torch", form)
    for target in KINDS:
        x = make(kind, a)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(50_000_000)
            (x._values() if form == "coo" else x.values()).mul_(2)
            y = ferry.sparse.to(x, target[0], **options(target))
            np.testing.assert_array_equal(on_host(y, target[0]).toarray(), a.toarray() * 2)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_empty_and_small(kind):
    for shape, places in (((3, 2), ([], [])), ((3, 2), ([2], [1])), ((6, 4), ([5, 0], [0, 3]))):
        order = np.lexsort(tuple(map(np.array, reversed(places))))
        coords = tuple(np.array(axis, "int32")[order] for axis in places)
        a = scipy.sparse.coo_array((np.arange(1.0, 1 + len(order)), coords), shape=shape)
        for target in KINDS:
            agree(ferry.sparse.to(make(kind, a), target[0], **options(target)), target[0], a)
        back = ferry.sparse.to(make(kind, a), "scipy", format="csr")
        np.testing.assert_array_equal(back.toarray(), a.toarray())


@pytest.mark.skipif("cupy" not in GPU_FRAMEWORKS, reason="CuPy is not here")
def test_what_cupy_has_no_room_for():
    x = make(("torch", "csr"), matrix()).to(torch.bfloat16)
    with pytest.raises(ferry.UnsupportedDTypeError, match="bfloat16"):
        ferry.to(x, "cupy")
    with pytest.raises(ferry.InvalidArgumentError, match=r"(?s)'bsr'.*hint: .*coo, csr, csc"):
        ferry.sparse.to(x.to(torch.float32), "cupy", format="bsr")
    broken = make(("cupy", "csr"), matrix())
    broken.indices[5] = 10_000
    with pytest.raises(ferry.InvalidTensorError, match="10000"):
        ferry.to(broken, "torch")


@pytest.mark.skipif("cupy" not in GPU_FRAMEWORKS, reason="CuPy is not here")
def test_what_autograd_needs_is_not_lent_to_cupy():
    """CuPy has no read-only arrays, so that it gets copies of what backward() still needs."""
    leaf = make(("torch", "csr"), matrix()).requires_grad_()
    result = leaf * 2
    made = ferry.to(result, "cupy")
    assert made.data.data.ptr != result.detach().values().data_ptr()
    assert ferry.to(leaf, "cupy").data.data.ptr == leaf.detach().values().data_ptr()
