"""New memory that others can be given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support import children
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
    x = ferry.empty(shape, "float64", framework)
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
    x = ferry.empty((64, 64), "float32", framework, shared=False)
    assert mapping_of(ADDRESS[framework](x)) is None
    refused(ferry.CopyRequired, BufferError, lambda: ferry.publish(x, copy=False))


def test_empty_tensors_do_not_overlap() -> None:
    made = [ferry.empty(n, "uint8") for n in (1, 63, 64, 65, 0, 100_000, 1, 5000)]
    spans = sorted((x.ctypes.data, x.ctypes.data + x.nbytes) for x in made if x.nbytes)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


def test_memory_that_went_is_not_given_to_two() -> None:
    """Arenas are used again when all in them is gone, and not before."""
    kept = ferry.empty(1000, "uint8")
    kept[:] = 7
    for _ in range(100):
        ferry.empty(1000, "uint8")[:] = 9
    assert (kept == 7).all()


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "mlx"])
@pytest.mark.parametrize("shares", [True, False])
def test_empty_refuses_what_cannot_be_filled(framework: str, shares: bool) -> None:
    def make() -> object:
        return ferry.empty((2,), "float32", framework, shared=shares)

    assert "could never be filled" in str(refused(ferry.InvalidArgument, ValueError, make))


@pytest.mark.parametrize("shape", [-1, (2, -1), 2.5, "ab", None, (1 << 63,), [[1]], range(10**15)])
def test_empty_refuses_what_is_no_shape(shape: object) -> None:
    refused(ferry.InvalidArgument, ValueError, lambda: ferry.empty(shape, "float32"))


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40), (1 << 60, 8)])
def test_empty_refuses_what_no_memory_holds(shape: tuple[int, ...]) -> None:
    with pytest.raises(ferry.FerryError, match="hint: "):
        ferry.empty(shape, "uint8")


def test_empty_refuses_the_rest() -> None:
    refused(ferry.InvalidArgument, ValueError, lambda: ferry.empty(3, "float33"))
    refused(ferry.InvalidArgument, ValueError, lambda: ferry.empty(3, None))
    with pytest.raises(ferry.FerryError, match="hint: "):
        ferry.empty(3, "float32", "numpy", "cuda")


def test_shared_memory_is_seen_and_trimmed() -> None:
    code = """
    import tensorferry as ferry
    assert ferry.memory().shared_bytes == 0
    x = ferry.empty(1000, "float32")
    y = ferry.empty(32 << 20, "uint8")
    assert ferry.memory().shared_bytes >= 32 << 20
    ferry.trim()
    x[:] = 1
    del x, y
    ferry.trim()
    assert ferry.memory().shared_bytes == 0
    """
    assert children.run(code) == ""
