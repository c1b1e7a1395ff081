"""Carries one tensor, and checks with the frameworks' own functions what has become of it."""

from textwrap import shorten
from typing import Any

import tensorferry as ferry
from tensorferry._tools import introspect, samples
from tensorferry._tools.doctor import sources
from tensorferry._tools.doctor.findings import Cell, Result

SHAPE = (12, 20)
PIN = 8 << 20
LONGEST = 200

# What a framework by its nature does not hold.
UNSUPPORTED = (ferry.UnsupportedDTypeError, ferry.UnsupportedError, ferry.UnsupportedError)


class CheckError(Exception):
    """What the check has found."""


def carry(cell: Cell, dtype: str, *, seed: int = 0) -> Result:
    """Carries a tensor of random values from a cell's source to its target."""
    array = samples.values(SHAPE, dtype, seed=seed)
    try:
        source = sources.make(cell.source, array, dtype, cell.origin, seed)
        if introspect.values(cell.source, source) != array.tobytes():
            raise CheckError(
                f"the {cell.source} tensor to carry has other values than it was made from"
            )
        return _carry(cell, source, dtype, array.tobytes())
    except sources.NoSourceError as error:
        return Result("impossible", shorten(str(error), LONGEST), "try another --dtype")
    except CheckError as wrong:
        return Result("wrong", str(wrong), "please report it, with the output of --json")
    except UNSUPPORTED as error:
        return Result("impossible", *_fact_and_hint(error))
    except ferry.FerryError as error:
        return Result("failed", *_fact_and_hint(error))
    except Exception as error:
        fact, hint = _fact_and_hint(error)
        return Result("failed", f"{type(error).__name__}: {fact}", hint)


def _carry(cell: Cell, source: Any, dtype: str, expected: bytes) -> Result:
    device = None if cell.origin == cell.destination else cell.destination
    plan = ferry.plan(source, cell.target, device=device)
    with ferry.trace() as trips:
        result = ferry.to(source, cell.target, device=device)
    if introspect.values(cell.target, result) != expected:
        raise CheckError("the values are not those of the source")
    if introspect.values(cell.source, source) != expected:
        raise CheckError("the values of the source have changed")
    if (became := (introspect.dtype(cell.target, result), tuple(result.shape))) != (dtype, SHAPE):
        raise CheckError(f"the result is {became[0]} of shape {became[1]}")
    if (place := introspect.place(cell.target, result)) != cell.destination:
        raise CheckError(f"the result is on {place}")
    took = {trip.plan.action for trip in trips}
    if took != {plan.action}:
        raise CheckError(f"planned was {plan.action}, and traced {', '.join(took) or 'nothing'}")
    if (result is source) != (plan.action == "itself"):
        raise CheckError(f"planned was {plan.action}, and the result is not so")
    if plan.action == "itself":
        return Result("itself", memory="seen")
    memory = _memory(cell, source, result, plan.shares)
    if plan.shares:
        return Result("shared", memory=memory)
    reasons = "; ".join(dict.fromkeys(reason for _, reason in plan.steps))
    return Result("copied", reasons, plan.advice, memory)


def _memory(cell: Cell, source: Any, result: Any, shares: bool) -> str:
    """Holds the plan against where the memory is; says why where it cannot."""
    places = []
    for framework, x in ((cell.source, source), (cell.target, result)):
        try:
            places.append(introspect.address(framework, x))
        except Exception as error:  # a look that fails tells nothing about what was carried
            fact, _ = _fact_and_hint(error)
            return f"not seen, because {framework} does not tell the address: {fact}"
    same = places[0] == places[1]
    if shares and not same:
        raise CheckError("planned was a share, and the result has memory of its own")
    if same and not shares:
        raise CheckError("planned was a copy, and the result is over the memory of the source")
    return "seen"


def pinned(framework: str, device: str) -> int:
    """The bytes that are pinned after downloads into memory that had time to be."""
    shape = (PIN // 4,)
    expected = samples.values(shape, "float32").tobytes()
    x = samples.make(framework, shape, device=device)
    for _ in range(2):
        if introspect.values("numpy", ferry.to(x, "numpy")) != expected:
            raise CheckError(f"a download of {PIN >> 20} MiB from {framework} has wrong values")
    return ferry.memory_stats().pinned_bytes


def _fact_and_hint(error: BaseException) -> tuple[str, str | None]:
    fact, _, hint = str(error).partition("\nhint: ")
    return shorten(fact, LONGEST) or type(error).__name__, " ".join(hint.split()) or None
