"""Converts one tensor, and checks the result with the frameworks' own functions."""

from textwrap import shorten
from typing import Any

import tensorferry as ferry
from tensorferry._tools import introspect, samples
from tensorferry._tools.doctor import sources
from tensorferry._tools.doctor.findings import Cell, Result

SHAPE = (12, 20)
PINNED_TEST_BYTES = 8 << 20
MAX_FACT_CHARS = 200

# Tensors that a framework does not support.
UNSUPPORTED = (ferry.UnsupportedDTypeError, ferry.UnsupportedError)


class CheckError(Exception):
    """A check of a conversion failed."""


def convert_cell(cell: Cell, dtype: str, *, seed: int = 0) -> Result:
    """Converts a tensor of random values from a cell's source to its target."""
    array = samples.values(SHAPE, dtype, seed=seed)
    try:
        source = sources.make(cell.source, array, dtype, cell.origin, seed)
        if introspect.values(cell.source, source) != array.tobytes():
            raise CheckError(
                f"the {cell.source} source tensor differs from the values it was made from"
            )
        return _convert(cell, source, dtype, array.tobytes())
    except sources.NoSourceError as error:
        return Result("impossible", shorten(str(error), MAX_FACT_CHARS), "try another --dtype")
    except CheckError as error:
        return Result("wrong", str(error), "please report it, with the output of --json")
    except UNSUPPORTED as error:
        return Result("impossible", *_fact_and_hint(error))
    except ferry.FerryError as error:
        return Result("failed", *_fact_and_hint(error))
    except Exception as error:
        fact, hint = _fact_and_hint(error)
        return Result("failed", f"{type(error).__name__}: {fact}", hint)


def _convert(cell: Cell, source: Any, dtype: str, expected: bytes) -> Result:
    device = None if cell.origin == cell.destination else cell.destination
    plan = ferry.plan(source, cell.target, device=device)
    with ferry.trace() as trips:
        result = ferry.to(source, cell.target, device=device)
    if introspect.values(cell.target, result) != expected:
        raise CheckError("the result differs from the source")
    if introspect.values(cell.source, source) != expected:
        raise CheckError("the conversion changed the source")
    actual = (introspect.dtype(cell.target, result), tuple(result.shape))
    if actual != (dtype, SHAPE):
        raise CheckError(f"the result is {actual[0]} of shape {actual[1]}")
    if (found := introspect.device(cell.target, result)) != cell.destination:
        raise CheckError(f"the result is on {found} instead of {cell.destination}")
    traced = {trip.plan.action for trip in trips}
    if traced != {plan.action}:
        raise CheckError(
            f"the plan was {plan.action}, and the trace has {', '.join(traced) or 'nothing'}"
        )
    if (result is source) != (plan.action == "itself"):
        raise CheckError(f"the plan was {plan.action}, and the result is not")
    if plan.action == "itself":
        return Result("itself", memory="seen")
    memory = _compare_memory(cell, source, result, plan.shares)
    if plan.shares:
        return Result("shared", memory=memory)
    reasons = "; ".join(dict.fromkeys(reason for _, reason in plan.steps))
    return Result("copied", reasons, plan.advice, memory)


def _compare_memory(cell: Cell, source: Any, result: Any, shares: bool) -> str:
    """Checks the plan against the addresses; returns "seen", or why they cannot be compared."""
    addresses = []
    for framework, x in ((cell.source, source), (cell.target, result)):
        try:
            addresses.append(introspect.address(framework, x))
        except Exception as error:  # says nothing about the conversion
            fact, _ = _fact_and_hint(error)
            return f"not checked: {framework} does not give the address: {fact}"
    same = addresses[0] == addresses[1]
    if shares and not same:
        raise CheckError("the plan was to share, and the result has its own memory")
    if same and not shares:
        raise CheckError("the plan was to copy, and the result shares the memory of the source")
    return "seen"


def pinned_after_downloads(framework: str, device: str) -> int:
    """The bytes of pinned memory after two downloads."""
    shape = (PINNED_TEST_BYTES // 4,)
    expected = samples.values(shape, "float32").tobytes()
    x = samples.make(framework, shape, device=device)
    for _ in range(2):
        if introspect.values("numpy", ferry.to(x, "numpy")) != expected:
            raise CheckError(
                f"a download of {PINNED_TEST_BYTES >> 20} MiB from {framework} has wrong values"
            )
    return ferry.memory_stats().pinned_bytes


def _fact_and_hint(error: BaseException) -> tuple[str, str | None]:
    fact, _, hint = str(error).partition("\nhint: ")
    return shorten(fact, MAX_FACT_CHARS) or type(error).__name__, " ".join(hint.split()) or None
