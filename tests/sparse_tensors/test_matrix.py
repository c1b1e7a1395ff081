"""Every sparse source to every sparse target: what is stored, in which order, with which flags."""

import numpy as np
import pytest
import torch
from support import sparse_cases as cases

import tensorferry as ferry
from tensorferry import sparse

WITHOUT_BFLOAT16 = ("scipy", "sparse")


def supports(kind, dtype):
    framework = kind.split()[0]
    if dtype == "bfloat16":
        return framework not in WITHOUT_BFLOAT16
    return framework != "jax" or dtype not in ("float64", "int64")  # 64-bit types are off


def options(target):
    return {"blocksize": cases.BLOCK} if target.endswith("bsr") else {}


def check_flags(result, elements):
    """What a result says about its own order is true, and its framework finds it well formed."""
    places = [place for place, _ in elements]
    in_order = places == sorted(places)
    alone = len(set(places)) == len(places)
    form = cases.arrays(result)[0]
    module = type(result).__module__.split(".")[0]
    if module == "torch" and form == "coo":
        assert result.is_coalesced() == (in_order and alone)
    elif module == "torch":
        parts = (result.ccol_indices(), result.row_indices()) if form == "csc" else None
        indptr, indices = parts or (result.crow_indices(), result.col_indices())
        torch.sparse_compressed_tensor(
            indptr,
            indices,
            result.values(),
            result.shape,
            layout=result.layout,
            check_invariants=True,
        )
    elif module == "jax":
        assert result.indices_sorted == in_order
        assert result.unique_indices == (in_order and alone)
    elif module == "scipy" and form == "coo":
        assert result.has_canonical_format == (in_order and alone)
    elif module == "scipy":
        result.check_format(full_check=True)
        kind = type(result)
        again = kind((result.data, result.indices, result.indptr), shape=result.shape)
        assert result.has_sorted_indices == again.has_sorted_indices
        if form != "bsr":
            assert result.has_canonical_format == again.has_canonical_format


def check_carried(source, target, case, dtype, index):
    x = cases.make(source, case, dtype, index)
    framework, form = target.split()
    before = cases.stored(x)
    told = sparse.plan(x, framework, format=form, **options(target))
    result = sparse.to(x, framework, format=form, **options(target))
    assert cases.stored(x) == before
    assert sparse.is_sparse(result)
    assert result.shape == x.shape
    if source == target:
        assert result is x
        assert told.action == "itself"
        return
    found = cases.stored(result)
    assert found == cases.expected(before, target, dtype)
    assert cases.arrays(result)[1].dtype == cases.dtype_of(dtype)
    assert told.format.removesuffix("_matrix") == cases.arrays(result)[0] == form
    check_flags(result, found)
    check_sharing(x, result, told)


def check_sharing(x, result, told):
    """The plan says "shared" of exactly the arrays that are."""
    _, values, index = cases.arrays(result)
    source_form, source_values, source_index = cases.arrays(x)
    by_name = {part.name: part for part in told.parts}
    if values.size:
        assert np.shares_memory(values, source_values) == by_name["values"].shares
    if told.format.removesuffix("_matrix") != "coo" and source_form != "coo":
        for name, made, given in zip(("indptr", "indices"), index, source_index, strict=True):
            if made.size and source_form == told.format:
                assert np.shares_memory(made, given) == by_name[name].shares
    for part in told.parts:
        assert part.shares == (part.bytes_moved == 0) or 0 in part.shape
        assert part.shares or part.steps


@pytest.mark.parametrize("target", cases.TARGETS)
@pytest.mark.parametrize("source", cases.SOURCES)
def test_every_case(source, target):
    for case in cases.CASES:
        for index in ("int32", "int64"):
            if "jax" in source and index == "int64":
                continue
            check_carried(source, target, case, "float32", index)


@pytest.mark.parametrize("target", cases.TARGETS)
@pytest.mark.parametrize("source", cases.SOURCES)
def test_every_type(source, target):
    for dtype in cases.DTYPES:
        if not supports(source, dtype):
            continue
        if supports(target, dtype):
            check_carried(source, target, "both", dtype, "int32")
        else:
            framework, form = target.split()
            x = cases.make(source, "both", dtype)
            with pytest.raises(ferry.UnsupportedDTypeError, match=rf"(not support|has no) {dtype}"):
                sparse.to(x, framework, format=form, **options(target))


@pytest.mark.parametrize("target", cases.TARGETS)
@pytest.mark.parametrize("source", cases.SOURCES)
def test_there_and_back(source, target):
    x = cases.make(source, "both")
    framework, form = target.split()
    there = sparse.to(x, framework, format=form, **options(target))
    own, own_form = source.split()
    back = sparse.to(there, own, format=own_form, **options(source.removesuffix("_matrix")))
    assert type(back) is type(x)
    zero = [(place, value) for place, value in cases.stored(back) if value]
    assert cases.summed(zero, "float32") == [
        element for element in cases.summed(cases.stored(x), "float32") if element[1]
    ]


@pytest.mark.parametrize("source", cases.SOURCES)
def test_copies_share_nothing(source):
    x = cases.make(source, "plain")
    for target in cases.TARGETS:
        framework, form = target.split()
        result = sparse.to(x, framework, format=form, copy=True, **options(target))
        assert result is not x
        assert not np.shares_memory(cases.arrays(result)[1], cases.arrays(x)[1])
        told = sparse.plan(x, framework, format=form, copy=True, **options(target))
        assert not any(part.shares for part in told.parts)


@pytest.mark.parametrize("source", cases.SOURCES)
def test_values_can_be_cast(source):
    x = cases.make(source, "both", "int32")
    for target in cases.TARGETS:
        framework, form = target.split()
        result = sparse.to(x, framework, format=form, dtype="float32", **options(target))
        assert cases.arrays(result)[1].dtype == np.float32
        assert cases.stored(result) == cases.expected(cases.stored(x), target, "int32")
        told = sparse.plan(x, framework, format=form, dtype="float32", **options(target))
        assert (told.source_dtype, told.dtype) == ("int32", "float32")
