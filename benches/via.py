"""What a decorated call costs beyond its trips: the same trips and body, written out by hand.

To add a call, give it an entry in `CALLS`.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
from table import Section, verdict

from tensorferry._tools import samples
from tensorferry._tools.bench.measure import interleave, make_timer
from tensorferry._tools.bench.timings import difference

# Microseconds.
LIMIT = 5.0
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")
# A call, and the trips that it makes, by hand; {home} is the caller's framework.
CALLS = {
    "f(x)": ("f(x)", 'ferry.to(body(ferry.to(x, "{name}")), "{home}")'),
    "f(x, 2, scale=x)": (
        "f(x, 2, scale=x)",
        'ferry.to(body(ferry.to(x, "{name}"), 2, scale=ferry.to(x, "{name}")), "{home}")',
    ),
    "a method": ("thing.f(x)", 'ferry.to(thing.body(ferry.to(x, "{name}")), "{home}")'),
}


def body(x: Any, count: int = 1, scale: Any = None) -> Any:
    return x


def callers() -> dict[str, Any]:
    """A small tensor of each framework."""
    return {name: samples.make(name, (16,)) for name in FRAMEWORKS}


def beyond(ours: str, by_hand: str, scope: dict[str, Any], quick: bool) -> dict[str, Any]:
    """The figures of a call and of the same by hand, once both have given the same result."""
    check(eval(ours, scope), eval(by_hand, scope))
    timers = {"ours": make_timer(ours, scope), "by hand": make_timer(by_hand, scope)}
    found = interleave(timers, rounds=20 if quick else 100, batch=0.002, budget=5)
    longer = difference(found["ours"], found["by hand"]) * 1e6
    return {
        "ns": found["ours"].median * 1e9,
        "by hand ns": found["by hand"].median * 1e9,
        "beyond us": longer,
        "target": LIMIT,
        "verdict": verdict(longer <= LIMIT),
    }


def run(quick: bool) -> dict[str, Any]:
    import tensorferry as ferry

    tensors = callers()
    section = Section(
        "Calls of functions with @ferry.via, of 16 float32",
        {
            "call": "",
            "caller": "",
            "body": "",
            "ns": ",.0f",
            "by hand ns": ",.0f",
            "beyond us": ".2f",
            "target": ".2f",
            "verdict": "",
        },
        notes=["Beyond: the call less the same trips and body by hand, the median of the rounds."],
    )
    for name in FRAMEWORKS:
        decorated = ferry.via(name)(body)
        thing = type("Thing", (), {"f": ferry.via(name)(method), "body": method})()
        for home, x in tensors.items():
            for title, (ours, trips) in CALLS.items():
                if quick and (title != "f(x)" or name == home):
                    continue
                scope = {"ferry": ferry, "f": decorated, "body": body, "thing": thing, "x": x}
                by_hand = trips.format(name=name, home=home)
                figures = beyond(ours, by_hand, scope, quick)
                row = {"call": f"`{title}`", "caller": home, "body": name}
                section.rows.append({**row, **figures})
    return asdict(section)


def method(self: Any, x: Any) -> Any:
    return x


def check(result: Any, expected: Any) -> None:
    """The caller's own framework, and the same values."""
    if type(result) is not type(expected) or not np.array_equal(result, expected):
        raise AssertionError("the decorated call gave something else")
