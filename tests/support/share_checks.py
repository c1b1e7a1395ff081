"""What the consumer's process holds against the oracle, for many tickets at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matrix.check import told
from matrix.expect import SourceProperties, expect
from support.capsules import dense_strides
from support.dtypes import NAMED, significant
from support.introspect import INSPECTORS, TYPES, values_now

import tensorferry as ferry


@dataclass(frozen=True)
class SharedPayload:
    """One ticket, and what the producer knows about its tensor."""

    ticket: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """As it lies in shared memory."""
    past: int
    """Bytes past a 64-byte boundary at which it begins."""
    frozen: bool
    """Whether it was published as read-only."""
    values: bytes


def maps() -> list[tuple[int, int, bool]]:
    """The shared memory of this process: from where to where, and whether it can be written."""
    found = []
    with open("/proc/self/maps") as file:
        for line in file:
            if "/memfd:tensorferry" in line:
                span, rights = line.split()[:2]
                first, last = (int(part, 16) for part in span.split("-"))
                found.append((first, last, "w" in rights))
    return found


def mapping_of(address: int, places: list[tuple[int, int, bool]] | None = None) -> Any:
    """The shared memory in which an address lies, as `maps` tells it; or None."""
    places = maps() if places is None else places
    return next((place for place in places if place[0] <= address < place[1]), None)


@dataclass(frozen=True)
class Attached:
    """What came of a parcel."""

    parcel: SharedPayload
    facts: SourceProperties
    result: Any
    shares: bool
    """Whether it was said to be shared."""


HELD: list[Attached] = []


def attach_all(parcels: list[SharedPayload], target: str) -> list[str]:
    """Attaches them all, holds the results, and tells what is wrong with any of them."""
    HELD.clear()
    wrong: list[str] = []

    def told_of(parcel: SharedPayload, check: Callable[[], Attached | None]) -> Attached | None:
        try:
            return check()
        except Exception as error:
            wrong.append(f"{parcel.dtype}: {type(error).__name__}: {str(error)[:400]}")
            return None

    for parcel in parcels:
        attached = told_of(parcel, lambda parcel=parcel: _attach(parcel, target))
        if attached is not None:
            HELD.append(attached)
    places = maps()
    for attached in HELD:
        if attached.facts.count > 0:
            told_of(attached.parcel, lambda one=attached: _check_memory(one, target, places))
    return wrong


def see(target: str) -> dict[str, tuple[bytes, bool]]:
    """The values that are there now, and whether the memory was said to be shared."""
    return {one.parcel.ticket: (values_now(target, one.result), one.shares) for one in HELD}


def release_all() -> None:
    """Drops all that is held. (JAX has cycles of its own around what NumPy has looked at.)"""
    HELD.clear()
    gc.collect()


def _refusal(ticket: str, target: str) -> ferry.FerryError | None:
    try:
        ferry.attach(ticket, target)
    except ferry.FerryError as error:
        return error
    return None


def _attach(parcel: SharedPayload, target: str) -> Attached | None:
    """Attaches, and holds everything but the place against the oracle."""
    dtype, look = NAMED[parcel.dtype], INSPECTORS[target]
    facts = SourceProperties(
        "shared memory",
        dtype,
        parcel.shape,
        parcel.strides,
        4096 + parcel.past,
        frozen=parcel.frozen,
    )
    outcome = expect(facts, target)
    if outcome.error is not None:
        error = _refusal(parcel.ticket, target)
        assert type(error) is outcome.error, f"{type(error).__name__}: {error} (oracle: {outcome})"
        assert error.hint, str(error)
        return None
    with ferry.trace() as trips:
        result = ferry.attach(parcel.ticket, target)
    assert isinstance(result, TYPES[target]), type(result)
    assert look.dtype(result) == dtype.name, look.dtype(result)
    assert look.shape(result) == parcel.shape, look.shape(result)
    assert significant(dtype, look.values(result)) == parcel.values, "the values changed"
    assert len(trips) == 1, trips
    plan = trips[0].plan
    assert plan.action == outcome.action, f"{plan} (oracle: {outcome})"
    assert (plan.source, plan.target) == ("shared memory", target)
    assert trips[0].shares == (outcome.action == "share")
    assert plan.writable == outcome.writable, f"writable is {plan.writable} (oracle: {outcome})"
    if target == "numpy":
        assert result.flags.writeable == outcome.writable
    return Attached(parcel, facts, result, outcome.action == "share")


def _check_memory(one: Attached, target: str, places: list[tuple[int, int, bool]]) -> None:
    """A share lies in shared memory, a copy does not."""
    look, facts, result = INSPECTORS[target], one.facts, one.result
    place = mapping_of(look.address(result), places)
    assert (place is not None) == one.shares, f"it is at {place}, said to be shared: {one.shares}"
    strides = look.strides(result)
    if place is not None:
        assert place[2] != facts.frozen, "read-only memory can be written, or the other way round"
        assert strides is None or told(strides, facts.shape) == told(facts.strides, facts.shape)
    elif target != "mlx" and strides is not None:
        dense = dense_strides(facts.shape, facts.dtype.size)
        assert told(strides, facts.shape) == told(dense, facts.shape)
