"""Carries one cell and holds everything about the result against the oracle."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from matrix.cells import Cell
from matrix.expect import TARGETS, Outcome, SourceProperties, expect
from support.capsules import dense_strides
from support.dtypes import DType, significant
from support.introspect import INSPECTORS, TYPES, values_now
from support.memory import poke

import tensorferry as ferry

# How many cells were right, by action or error.
TALLY: Counter[str] = Counter()


def check(cell: Cell, target: str, **options: Any) -> Any:
    """Carries the cell, checks what came of it, and gives the result (None where an error was
    right)."""
    outcome = expect(cell.facts, target, **options)
    options = {name: getattr(wish, "name", wish) for name, wish in options.items()}
    if outcome.error is not None:
        check_error(cell, target, outcome, options)
        TALLY[outcome.error.__name__] += 1
        return None
    plan = ferry.plan(cell.object, target, **options)
    with ferry.trace() as trips:
        result = ferry.to(cell.object, target, **options)
    check_plan(plan, cell.facts, target, outcome)
    assert len(trips) == 1
    check_plan(trips[0].plan, cell.facts, target, outcome)
    assert said(trips[0].plan) == said(plan)
    assert trips[0].seconds >= 0
    look = INSPECTORS[target]
    assert isinstance(result, TYPES[target])
    assert look.dtype(result) == outcome.dtype.name
    assert look.shape(result) == cell.facts.shape
    if outcome.dtype == cell.facts.dtype:
        assert significant(outcome.dtype, look.values(result)) == cell.values, "the values changed"
    on_host = plan.source_device.startswith("cpu") and plan.device.startswith("cpu")
    if outcome.dtype.kind == "bool" and outcome.action == "copy" and on_host:
        assert set(look.values(result)) <= {0, 1}, "a copy has a bool of another byte"
    if outcome.action == "itself":
        assert result is cell.object or cell.facts.snapshot
    else:
        assert result is not cell.object
        check_memory(cell, target, outcome, result)
    if target == "numpy":
        assert result.flags.writeable == outcome.writable
    TALLY[str(outcome.action)] += 1
    return result


def check_error(cell: Cell, target: str, outcome: Outcome, options: dict[str, Any]) -> None:
    """The named error, from the plan and from the trip alike, in words that help."""
    messages = set()
    for verb in (ferry.plan, ferry.to):
        with pytest.raises(ferry.FerryError) as caught:
            verb(cell.object, target, **options)
        assert type(caught.value) is outcome.error, f"{type(caught.value).__name__}: {caught.value}"
        assert caught.value.hint
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert "\nhint: " in messages.pop()


def said(plan: ferry.Plan) -> dict[str, Any]:
    """All that a plan says, but for time and road, which depend on what lies idle at the moment."""
    changing = ("expected_seconds", "transfer_path")
    return {name: value for name, value in plan.as_dict().items() if name not in changing}


def check_plan(plan: ferry.Plan, facts: SourceProperties, target: str, outcome: Outcome) -> None:
    """A plan that says what the oracle says."""
    assert plan.action == outcome.action, f"{plan} (oracle: {outcome})"
    assert (plan.source, plan.target) == (facts.framework, target)
    assert (plan.source_dtype, plan.dtype) == (facts.dtype.name, outcome.dtype.name)
    assert plan.shape == facts.shape
    assert plan.shares == (outcome.action != "copy")
    assert plan.bytes_moved == (facts.count * outcome.dtype.size if outcome.action == "copy" else 0)
    assert plan.writable == outcome.writable, f"writable is {plan.writable} (oracle: {outcome})"
    assert bool(plan.steps) == (outcome.action == "copy")
    if outcome.action == "copy":
        check_steps(plan.steps, facts, target, outcome)
    detached = any("detached" in note for note in plan.notes)
    assert detached == (facts.grad and outcome.action != "itself")
    if outcome.action == "share":
        check_notes(plan.notes, facts, outcome, target)


def check_steps(
    steps: list[tuple[str, str]], facts: SourceProperties, target: str, outcome: Outcome
) -> None:
    """Each fact that forbids the share is told, and no other. Where every byte is read anew in
    any case (a cast, a target that copies whatever comes), how the source lies may be told or
    not."""
    cast = outcome.dtype != facts.dtype
    assert ("cast" in [kind for kind, _ in steps]) == cast
    if not cast and not TARGETS[target].copies:
        assert len(steps) == len(outcome.why), f"{steps} (oracle: {outcome.why})"


def check_notes(notes: list[str], facts: SourceProperties, outcome: Outcome, target: str) -> None:
    """A share says who must not write what."""
    text = "\n".join(notes)
    aliases_immutable = facts.immutable and outcome.writable
    assert ("aliases an immutable source: do not write in place" in text) == aliases_immutable
    if not facts.frozen:
        # Frozen memory may have another way in: there the note is right, and no note is right too.
        lent = target in ("jax", "tensorflow") and not facts.immutable
        assert ("do not write the source while the result" in text) == lent, text


def check_memory(cell: Cell, target: str, outcome: Outcome, result: Any) -> None:
    """A share is the source's memory, a copy is not; a byte changed underneath tells for
    certain."""
    facts, look = cell.facts, INSPECTORS[target]
    if facts.count == 0:
        return
    address = look.address(result)
    if target in ("jax", "tensorflow"):
        assert address % 64 == 0, "the target needs 64-byte alignment"
    shares = outcome.action == "share"
    if shares:
        assert address == facts.address
        strides = look.strides(result)
        assert strides is None or told(strides, facts.shape) == told(facts.strides, facts.shape)
    else:
        low, high = extent(facts)
        # Two elements of a packed type share a byte.
        packed = "packed in the target" in outcome.why
        size = (facts.count * outcome.dtype.size + packed) // (1 + packed)
        assert not low < address + size or not address < high, "the copy overlaps"
        if not facts.pending and target != "mlx" and look.strides(result) is not None:
            dense = dense_strides(facts.shape, outcome.dtype.size)
            assert told(look.strides(result), facts.shape) == told(dense, facts.shape)
    if cell.pokes:
        before = values_now(target, result)
        poke(facts.address, facts.device)
        after = values_now(target, result)
        poke(facts.address, facts.device)
        assert (before != after) == shares, "a byte of the source changed" + (
            " unseen" if shares else " the copy"
        )


def told(strides: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that mean something."""
    return tuple(step for n, step in zip(shape, strides, strict=True) if n > 1)


def extent(facts: SourceProperties) -> tuple[int, int]:
    """The first address of the elements and one past the last."""
    low = high = facts.address
    for n, step in zip(facts.shape, facts.strides, strict=True):
        low += min(0, (n - 1) * step)
        high += max(0, (n - 1) * step)
    return low, high + facts.dtype.size


class Failures:
    """Collects what went wrong over many dtypes, so that one test tells all of it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.cells = 0

    def observe(self, what: str | DType) -> Failures:
        """Names the cell that is checked inside the `with`."""
        self._what = str(what)
        return self

    def __enter__(self) -> None:
        self.cells += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception | pytest.fail.Exception):
            return False
        where = trace
        while where.tb_next is not None:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{where.tb_lineno}"
        self._lines.append(f"{self._what}: {kind.__name__} at {place}: {str(error)[:600]}")
        return True

    def report(self) -> None:
        """Fails if anything did, and if nothing was checked."""
        assert self.cells > 0, "no cell was checked"
        if self._lines:
            pytest.fail(
                f"{len(self._lines)} of {self.cells} cells\n" + "\n".join(self._lines),
                pytrace=False,
            )
