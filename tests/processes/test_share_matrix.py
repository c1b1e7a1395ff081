"""Every source in every case and dtype, published here and attached to every target elsewhere."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matrix.cells import FORMS, FRAMEWORK_SOURCES, Form, arrange, form_of
from matrix.constructors import dtypes_of, make, pairs_of_source_and_case
from programs.processes import share_peer as there
from support import share_checks
from support.capsules import dense_strides
from support.dtypes import ALL, DType, sample, significant
from support.introspect import FRAMEWORKS, INSPECTORS
from support.memory import poke
from support.peer_processes import Peer
from support.share_checks import SharedPayload
from support.share_counts import catch_up, soon

import tensorferry as ferry

PAIRS = [pair for pair in pairs_of_source_and_case() if pair[0] in FRAMEWORK_SOURCES]
SHARED_FORMS = [case for case in FORMS if not case.startswith("unaligned by 1") and case != "empty"]
# Layouts that a framework has no tensors of: JAX takes memory without gaps and TensorFlow dense
# rows, both at multiples of 64 bytes.
UNALIGNED = ["storage offset", "unaligned by 4", "unaligned by 8", "unaligned by 32"]
STRIDED = ["sliced with step", "negative step", "broadcast"]
CANNOT = {
    "numpy": [],
    "torch": ["negative step"],
    "jax": [*STRIDED, *UNALIGNED],
    "tensorflow": ["transposed", *STRIDED, "zero dimensions", *UNALIGNED],
    "paddle": ["negative step", "ten dimensions", "sixty-four dimensions"],
}


@pytest.fixture(scope="module")
def consumer() -> Iterator[Peer]:
    """One process with every framework, for all the tests here."""
    with Peer(*FRAMEWORKS) as peer:
        # What the checks import is left out of every collection.
        peer.run(share_checks.release_all)
        peer.run(gc.freeze)
        yield peer


def report(wrong: dict[str, list[str]]) -> None:
    lines = [f"to {target}: {line}" for target, found in wrong.items() for line in found]
    if lines:
        pytest.fail(f"{len(lines)} are wrong\n" + "\n".join(lines), pytrace=False)


@pytest.mark.parametrize(("source", "case"), PAIRS)
def test_ordinary_memory(source: str, case: str, consumer: Peer) -> None:
    """It is copied once, the trip says so, and every target elsewhere gets the bits."""
    parcels, tickets, cells = [], [], []
    for dtype in dtypes_of(source, case):
        cell = make(source, case, dtype)
        assert cell is not None
        facts = cell.facts
        frozen = facts.frozen or facts.immutable
        with ferry.trace() as trips:
            ticket = ferry.publish(cell.object, writable=False if frozen else None)
        assert len(trips) == 1
        plan, moved = trips[0].plan, facts.count * dtype.size
        assert (plan.source, plan.target) == (source, "shared memory")
        assert plan.action == ("copy" if facts.count or facts.pending else "share"), (
            f"{dtype}: {plan}"
        )
        assert plan.bytes_moved == trips[0].bytes_moved == moved, f"{dtype}: {plan}"
        # What the maker says is what the source's own framework says.
        assert significant(dtype, INSPECTORS[source].values(cell.object)) == cell.values
        parcels.append(
            SharedPayload(
                str(ticket),
                dtype.name,
                facts.shape,
                dense_strides(facts.shape, dtype.size),
                0,
                frozen=frozen,
                values=cell.values,
            )
        )
        tickets.append(ticket)
        cells.append(cell)
    assert parcels
    wrong = {
        target: consumer.run(share_checks.attach_all, parcels, target) for target in FRAMEWORKS
    }
    report(wrong)
    consumer.run(share_checks.release_all)
    for ticket in tickets if case != "empty" else []:
        assert soon(lambda ticket=ticket: ticket.leases == 0), "the consumer has released all"


def shared_source(source: str, dtype: DType, form: Form) -> tuple[Any, np.ndarray] | None:
    """A tensor over shared memory, and the same as an array; None where it would be copied. (What
    TensorFlow lends of a scalar is a number that it uses again: that is copied.)"""
    if source == "tensorflow" and not form.shape:
        return None
    room = ferry.empty_shared(form.room * dtype.size + 64, "uint8")
    raw = room[form.past : form.past + form.room * dtype.size]
    raw[:] = sample(dtype, form.room)
    array = arrange(dtype, raw, form)
    try:
        return ferry.to(array, source, copy=False), array
    except (ferry.CopyRequiredError, ferry.UnsupportedDTypeError, ferry.UnsupportedError):
        return None


@pytest.mark.parametrize(("source", "case"), [(s, c) for s in CANNOT for c in CANNOT[s]])
def test_memory_that_a_source_cannot_use(source: str, case: str) -> None:
    """Where this turns red, the framework has learnt something, and the next test can have it."""
    assert not any(shared_source(source, dtype, form_of(case)) for dtype in ALL)


@pytest.mark.parametrize(
    ("source", "case"), [(s, c) for s in CANNOT for c in SHARED_FORMS if c not in CANNOT[s]]
)
def test_shared_memory(source: str, case: str, consumer: Peer) -> None:
    """Nothing is copied here, the layout arrives as it is, and what is written is seen."""
    form, parcels, kept = form_of(case), [], []
    for dtype in ALL:
        made = shared_source(source, dtype, form)
        if made is None:
            continue
        x, array = made
        with ferry.trace() as trips:
            ticket = ferry.publish(x, copy=False)
        assert [trip.plan.action for trip in trips] == ["share"]
        values = significant(dtype, INSPECTORS["numpy"].values(array))
        past = array.ctypes.data % 64
        frozen = source in ("jax", "tensorflow")
        parcel = SharedPayload(
            str(ticket), dtype.name, array.shape, array.strides, past, frozen=frozen, values=values
        )
        parcels.append(parcel)
        kept.append((ticket, x, array))
    assert parcels, "the source can use such memory"
    wrong = {}
    for target in FRAMEWORKS:
        wrong[target] = consumer.run(share_checks.attach_all, parcels, target)
        before = consumer.run(share_checks.see, target)
        for _, _, array in kept:
            poke(array.ctypes.data)
        after = consumer.run(share_checks.see, target)
        for _, _, array in kept:
            poke(array.ctypes.data)
        assert before.keys() == after.keys()
        for ticket, (values, shares) in before.items():
            seen = after[ticket][0] != values
            if seen != shares:
                dtype = next(one.dtype for one in parcels if one.ticket == ticket)
                wrong[target].append(f"{dtype}: said to be shared: {shares}, seen: {seen}")
    report(wrong)


@pytest.mark.xfail(
    reason="Paddle holds empty tensors at one address, and never releases all of them"
)
def test_empty_tensors_are_released_by_paddle(consumer: Peer) -> None:
    tickets = [ferry.publish(np.zeros((0, 4), np.float32)) for _ in range(3)]
    consumer.run(there.attach_and_clear, [str(ticket) for ticket in tickets], "paddle")
    catch_up()
    assert all(ticket.leases == 0 for ticket in tickets)
