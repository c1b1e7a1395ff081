"""The dense tensor of a sparse one, on the host, and by the code that runs on a GPU."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import sparse as jax_sparse
from support import sparse_cases as cases

import tensorferry as ferry
from tensorferry import sparse
from tensorferry.sparse import dense, frameworks, gpu, route, work
from tensorferry.sparse.check import check
from tensorferry.sparse.entries import arrange, entries_of
from tensorferry.sparse.route import Wishes, decide

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
        whole = [trip for trip in trips if tuple(trip.plan.shape) == (3, 4)]
        assert [trip.shares for trip in whole] == [True]
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
    with pytest.raises(ferry.OutOfMemoryError, match="not to be had"):
        sparse.to_dense(x, "torch")


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32", "bool", "bfloat16"])
@pytest.mark.parametrize("case", ["both", "plain", "empty"])
def test_the_scatters_for_a_gpu(framework, dtype, case):
    """The same functions fill a tensor wherever its parts are."""
    for source in ("torch coo", "torch csr", "tensorflow coo"):
        x = cases.make(source, case, dtype)
        way = decide(x, framework, Wishes(), format="coo", lenient=True)
        made = frameworks.module_of(framework).scatter(way.arrive())
        found = ferry.to(made, "numpy")
        assert found.dtype == cases.dtype_of(dtype)
        assert found.tolist() == cases.dense(cases.stored(x), (3, 4), dtype).tolist()


@pytest.mark.parametrize("source", cases.SOURCES)
def test_the_worker_for_a_gpu(source, monkeypatch):
    """PyTorch's worker, which sorts and sums on a GPU, does on the host what NumPy's does."""
    monkeypatch.setattr(route, "worker", lambda *_: (gpu.Torch("cpu"), None))
    for target in cases.TARGETS:
        framework, form = target.split()
        options = {"blocksize": cases.BLOCK} if form == "bsr" else {}
        for case in ("both", "plain", "empty", "no rows"):
            x = cases.make(source, case)
            result = sparse.to(x, framework, format=form, **options)
            if source != target:
                wanted = cases.expected(cases.stored(x), target, "float32")
                assert cases.stored(result) == wanted


def test_booleans_are_summed_by_the_worker_for_a_gpu():
    workers = (work.Host("cpu"), gpu.Torch("cpu"))
    x = cases.make("torch coo", "both", "bool")
    for each in workers:
        bundle = route.source_of(x)
        entries = entries_of(bundle, check(bundle, each), each)
        arrange(entries, "coo", frameworks.module_of("tensorflow").formats()["coo"])
        assert entries.summed().tolist() == [True, True, True]
        assert entries.count == 3


@pytest.mark.parametrize("most", [1, 5, 2**31 - 1, 2**63 - 1])
def test_orders_are_stable(most):
    keys = np.random.default_rng(0).integers(0, most, 999, endpoint=True)
    keys[500:] = keys[:499]
    wanted = sorted(range(999), key=lambda place: keys[place])
    numbers = np.arange(999)
    given = {work.Host("cpu"): (keys, numbers)}
    given[gpu.Torch("cpu")] = (torch.from_numpy(keys), torch.from_numpy(numbers))
    for worker, (places, values) in given.items():
        found = worker.order([places], "apart", [most + 1 if most < 2**63 - 1 else most])
        assert found.pick(values).tolist() == wanted
        assert found.places == len(set(keys.tolist()))
        firsts = found.pick(places, True).tolist()
        assert firsts == sorted(set(keys.tolist()))
        sums = [sum(range(999)[i] for i in range(999) if keys[i] == place) for place in firsts[:9]]
        assert found.sum(values).tolist()[:9] == sums
        assert worker.order([places[:0]], "apart", [most]).pick(values[:0]).tolist() == []


def test_who_works_on_a_gpu(monkeypatch):
    assert type(work.worker("cuda:0", "jax", "torch")[0]) is gpu.Torch
    assert type(work.worker("cuda:0", "jax", "tensorflow")[0]) is gpu.Torch
    monkeypatch.delitem(work.sys.modules, "torch")
    found, why = work.worker("cuda:0", "jax", "tensorflow")
    assert type(found) is work.Host
    assert "worked on by the host" in why


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "bfloat16", "complex128"])
@pytest.mark.parametrize("index", ["int32", "int64", "uint16"])
def test_large_ones_in_no_order(dtype, index, monkeypatch):
    """Grouped first or scattered at once, with repeats or without, the sums are the same."""
    random = np.random.default_rng(3)
    places = tuple(random.integers(0, length, 5000).astype(index) for length in (40, 70))
    values = random.integers(0, 4, 5000).astype(cases.dtype_of(dtype))
    wanted = np.zeros((40, 70), values.dtype)
    np.add.at(wanted, places, values)
    indices = np.stack(places).astype("int64")
    given = (indices, ferry.to(values, "torch"), (40, 70))
    x = torch.sparse_coo_tensor(*given, check_invariants=True)
    bundle = route.source_of(x)
    bundle.coordinates, bundle.laid = places, "apart"
    for many in (1, 10**9):
        monkeypatch.setattr(dense, "MANY", many)
        assert dense.scattered_here(bundle).tolist() == wanted.tolist()
        assert sparse.to_dense(x, "numpy").tolist() == wanted.tolist()
