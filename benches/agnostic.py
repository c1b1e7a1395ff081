"""What a call of a function with @ferry.agnostic costs beyond its trips, made by hand.

Where all tensors are the caller's framework's there are none: then it is the call of the body with
its namespace. To add a call, give it an entry in `CALLS`.
"""

from dataclasses import asdict
from typing import Any

from table import Section
from via import beyond, callers

# A call, and the same by hand: the trips of what is not at home, the body, and the way back.
CALLS = {
    "f(x)": ("f(x)", "body(xp, x)"),
    "f(x, x)": ("f(x, x)", "body(xp, x, x)"),
    "f(x, 2, scale=x)": ("f(x, 2, scale=x)", "body(xp, x, 2, scale=x)"),
    "f([x, x, x])": ("f([x, x, x])", "body(xp, [x, x, x])"),
    "a method": ("thing.f(x)", "thing.body(xp, x)"),
    "f(x, y), y of another": ("f(x, y)", 'body(xp, x, ferry.to(y, "{home}"))'),
}


def body(xp: Any, x: Any, y: Any = None, scale: Any = None) -> Any:
    return x[0] if type(x) is list else x


def method(self: Any, xp: Any, x: Any) -> Any:
    return x


def run(quick: bool) -> dict[str, Any]:
    import tensorferry as ferry

    tensors = callers()
    section = Section(
        "Calls of functions with @ferry.agnostic, of 16 float32",
        {
            "call": "",
            "caller": "",
            "ns": ",.0f",
            "by hand ns": ",.0f",
            "beyond us": ".2f",
            "target": ".2f",
            "verdict": "",
        },
        notes=["Beyond: the call less the same by hand, the median of the rounds."],
    )
    decorated = ferry.agnostic(body)
    thing = type("Thing", (), {"f": ferry.agnostic(method), "body": method})()
    for home, x in tensors.items():
        other = tensors["torch" if home == "numpy" else "numpy"]
        names = {"ferry": ferry, "f": decorated, "body": body, "thing": thing, "x": x, "y": other}
        names["xp"] = ferry.array_namespace(x)
        for title, (ours, by_hand) in CALLS.items():
            if quick and title not in ("f(x)", "f(x, y), y of another"):
                continue
            figures = beyond(ours, by_hand.format(home=home), names, quick)
            section.rows.append({"call": f"`{title}`", "caller": home, **figures})
    return asdict(section)
