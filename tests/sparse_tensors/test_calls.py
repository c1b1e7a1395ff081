"""The calls into the native module that a trip makes."""

import sys

import pytest
from support import sparse_cases as cases

import tensorferry as ferry
from tensorferry import sparse

#: The most calls into the native module that one trip may make.
MAX_NATIVE_CALLS = 3


def native_calls(trip):
    """The names of the native module's functions that Python code called."""
    found = []

    def profile(frame, event, function):
        if event == "c_call" and (getattr(function, "__module__", "") or "").startswith(
            "tensorferry"
        ):
            found.append(function.__name__)

    sys.setprofile(profile)
    try:
        trip()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(
    ("source", "framework", "form"),
    [("scipy csr", "torch", "csr"), ("scipy coo", "jax", "coo"), ("torch csc", "scipy", "csc")],
)
@pytest.mark.parametrize("case", ["plain", "both"])
def test_host_arrays_are_carried_by_one_call(source, framework, form, case):
    x = cases.make(source, case)
    for trip in (
        lambda: ferry.to(x, framework),
        lambda: sparse.to(x, framework, format=form),
        lambda: sparse.to_dense(x, "numpy"),
    ):
        trip()
        calls = native_calls(trip)
        assert 1 <= len(calls) <= MAX_NATIVE_CALLS, calls
