"""New memory that others can be given."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support import subprocesses
from support.refusals import refused
from support.share_checks import mapping_of

import tensorferry as ferry

ADDRESS = {
    "numpy": lambda x: x.ctypes.data,
    "torch": lambda x: x.data_ptr(),
    "paddle": lambda x: x.data_ptr(),
}


@pytest.mark.parametrize("framework", ADDRESS)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (1 << 22,), (3, 1 << 21)])
def test_empty_is_shared_memory(framework: str, shape: tuple[int, ...]) -> None:
    x = ferry.empty_shared(shape, "float64", framework=framework)
    assert tuple(x.shape) == shape
    assert str(x.dtype).endswith("float64")
    if 0 not in shape:
        address = ADDRESS[framework](x)
        assert address % 64 == 0
        place = mapping_of(address)
        assert place is not None
        assert place[2], "it cannot be written"
        assert address + 8 * int(np.prod(shape)) <= place[1]
    with ferry.trace() as trips:
        ferry.publish(x, copy=False)
    assert [trip.shares for trip in trips] == [True]


@pytest.mark.parametrize("framework", ADDRESS)
def test_empty_without_sharing(framework: str) -> None:
    x = ferry.empty_aligned((64, 64), "float32", framework=framework)
    assert mapping_of(ADDRESS[framework](x)) is None
    refused(ferry.CopyRequiredError, BufferError, lambda: ferry.publish(x, copy=False))


def test_empty_tensors_do_not_overlap() -> None:
    made = [ferry.empty_shared(n, "uint8") for n in (1, 63, 64, 65, 0, 100_000, 1, 5000)]
    spans = sorted((x.ctypes.data, x.ctypes.data + x.nbytes) for x in made if x.nbytes)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


def test_memory_that_went_is_not_given_to_two() -> None:
    """Arenas are used again when all in them is gone, and not before."""
    kept = ferry.empty_shared(1000, "uint8")
    kept[:] = 7
    for _ in range(100):
        ferry.empty_shared(1000, "uint8")[:] = 9
    assert (kept == 7).all()


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "mlx"])
@pytest.mark.parametrize("empty", [ferry.empty_shared, ferry.empty_aligned])
def test_empty_refuses_what_cannot_be_filled(framework: str, empty: Any) -> None:
    def make() -> object:
        return empty((2,), "float32", framework=framework)

    error = refused(ferry.InvalidArgumentError, ValueError, make)
    assert framework in str(error).lower()


@pytest.mark.parametrize("shape", [-1, (2, -1), 2.5, "ab", None, (1 << 63,), [[1]], range(10**15)])
def test_empty_refuses_what_is_no_shape(shape: object) -> None:
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.empty_shared(shape, "float32"))


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40), (1 << 60, 8)])
def test_empty_refuses_what_no_memory_holds(shape: tuple[int, ...]) -> None:
    with pytest.raises(ferry.FerryError, match="hint: "):
        ferry.empty_shared(shape, "uint8")


def test_empty_refuses_the_rest() -> None:
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.empty_shared(3, "float33"))
    refused(ferry.InvalidArgumentError, ValueError, lambda: ferry.empty_shared(3, None))
    with pytest.raises(ferry.FerryError, match="hint: "):
        ferry.empty_shared(3, "float32", framework="numpy", device="cuda")


def test_shared_memory_is_seen_and_trimmed() -> None:
    assert subprocesses.run_program("processes/share_memory_stats.py") == ""
