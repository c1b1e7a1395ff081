"""The short ways of `plain.py`: what they give, share and refuse is what `route.py` does."""

import numpy as np
import pytest
import scipy.sparse
import torch
from support import sparse_cases as cases

import tensorferry as ferry
from tensorferry import sparse
from tensorferry.sparse import plain


def both_ways(monkeypatch, x, *target, verb=sparse.to, **options):
    """A trip as it is, and without the short ways: what comes out, or the words of the refusal."""
    results = []
    for carry in (plain.carry, lambda *_: None):
        with monkeypatch.context() as patch:
            patch.setattr(plain, "carry", carry)
            try:
                results.append(verb(x, *target, **options))
            except ferry.FerryError as error:
                results.append(f"{type(error).__name__}: {error}")
    return results


def shared(array, arrays):
    return any(np.shares_memory(array, other) for other in arrays)


@pytest.mark.parametrize("target", [name for name in cases.TARGETS if not name.endswith("bsr")])
@pytest.mark.parametrize("source", cases.SOURCES)
def test_the_same_arrays_and_the_same_memory(source, target, monkeypatch):
    framework, form = target.split()
    for case in cases.CASES:
        for index in ("int32", "int64"):
            if "jax" in source and index == "int64":
                continue
            x = cases.make(source, case, "float32", index)
            short, long = both_ways(monkeypatch, x, framework, format=form)
            assert type(short) is type(long)
            if short is x:
                continue
            told = sparse.plan(x, framework, format=form)
            _, given, places = cases.arrays(x)
            (_, values, made), (_, long_values, long_made) = map(cases.arrays, (short, long))
            # A matrix of coordinates is one part.
            plans = [part for part in told.parts if part.name != "values"]
            if len(plans) == 1:
                plans *= len(made)
            parts = [
                (told.parts[0], values, long_values),
                *zip(plans, made, long_made, strict=True),
            ]
            for part, array, other in parts:
                assert str(array.dtype) == str(other.dtype) == part.dtype
                assert array.tolist() == other.tolist()
                if array.size:
                    assert shared(array, [given, *places]) == part.shares, (case, part.name)


def test_lines_of_a_matrix_are_shared():
    """Those of NumPy are views; JAX and TensorFlow would make copies of them."""
    for source in ("jax coo", "tensorflow coo"):
        x = cases.make(source, "plain")
        made = sparse.to(x, "scipy", format="csr")
        assert sparse.plan(x, "scipy", format="csr").parts[2].shares
        assert np.shares_memory(made.indices, cases.arrays(x)[2][1])


def without_axes():
    nowhere, values = torch.empty((0, 3), dtype=torch.int64), torch.tensor([1.0, 2.0, 4.0])
    return torch.sparse_coo_tensor(nowhere, values, (), check_invariants=True)


def test_a_tensor_without_axes_is_the_sum_of_its_elements():
    assert sparse.to_dense(without_axes(), "numpy") == 7


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_a_tensor_without_axes_is_refused(form, monkeypatch):
    short, long = both_ways(monkeypatch, without_axes(), "scipy", format=form)
    assert short == long
    assert short.startswith("UnsupportedError: this torch coo tensor has no axis")


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_values_with_an_axis_too_many_are_broken(form, dense, monkeypatch):
    x = getattr(scipy.sparse, f"{form}_array")(np.eye(3))
    x.data = np.ones((3, 2))
    for target in ("coo", "csr", "csc"):
        options = {"verb": sparse.to_dense} if dense else {"format": target}
        short, long = both_ways(monkeypatch, x, "torch", **options)
        assert short == long
        assert short.startswith(f"InvalidTensorError: the scipy {form} tensor is broken")
