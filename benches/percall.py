"""What one call costs: 16 float32 elements (or 64 bytes), from each kind to each framework.

The pairs and their one-liners are in `pairs.py`. Every candidate is tried first. It counts if its
type, dtype and values are right; the quickest stands, and the table says where it copies. A full
run measures in three processes, and the middle ratio of each pair stands.
"""

import warnings
from dataclasses import asdict
from typing import Any

import child
import numpy as np
from measure import expression, interleave, quickest, ratio, spread, verdict
from pairs import CANDIDATES, COPIED, address, namespace, source
from table import Section


def limit(pair: tuple[str, str]) -> float:
    """The target: the most that we may take, as a share of the best one-liner's seconds.

    Which pairs take over five microseconds by the one-liners of today is written down, so that a
    machine that is slow for a while does not move a target.
    """
    kind, target = pair
    if pair == ("torch", "numpy"):
        return 0.6
    if target == "jax" or pair == ("bytes", "tensorflow"):
        return 1 / 3 if kind == "tensorflow" else 1 / 4
    return 1.05


def _mismatch(result: Any, target: str, expected: np.ndarray) -> str | None:
    """What is wrong with a result, if anything is."""
    # "jax" begins the name of jaxlib too, where the class of JAX's arrays lives.
    if not type(result).__module__.startswith(target):
        return f"a {type(result).__name__}, not a tensor of {target}"
    values = np.asarray(result)
    if values.dtype != expected.dtype or not np.array_equal(values, expected):
        return "other values"
    return None


def measure(pair: tuple[str, str], names: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Checks and measures one pair; gives its row of the table."""
    kind, target = pair
    x = source(kind, names)
    names = {**names, "x": x}
    plain = np.frombuffer(x, np.uint8) if kind in ("bytes", "bytearray") else np.asarray(x)
    expected = plain.copy()
    ours = f'ferry.to(x, "{target}")'
    shares: dict[str, bool] = {}
    refused: dict[str, str] = {}
    for candidate in [ours, *CANDIDATES[pair]]:
        try:
            result = eval(candidate, names)
        except Exception as error:
            if candidate == ours:
                raise
            refused[candidate] = type(error).__name__
            continue
        if wrong := _mismatch(result, target, expected):
            refused[candidate] = wrong
        else:
            shares[candidate] = address(result) == address(x)
    we_share = pair not in COPIED
    if shares.get(ours) is not we_share:
        found = refused.get(ours, "shared" if shares.get(ours) else "not shared")
        raise AssertionError(f"{ours} of {kind}: {found}")

    samples = interleave(
        {candidate: expression(candidate, names) for candidate in shares},
        rounds=rounds,
        batch=0.001,
        budget=10,
    )
    if wrong := _mismatch(eval(ours, names), target, expected):
        raise AssertionError(f"{ours} of {kind}, after many calls: {wrong}")
    best = quickest({name: figures for name, figures in samples.items() if name != ours})
    figure = ratio(samples[ours], samples[best])
    most = limit(pair)
    return {
        "from": kind,
        "to": target,
        "ours ns": samples[ours].median * 1e9,
        "native ns": samples[best].median * 1e9,
        "ratio": figure,
        "spread": spread(samples[ours], samples[best]),
        "target": most,
        "verdict": verdict(figure, most),
        "best native": f"`{best}`" + ("" if shares[best] else " (copies)"),
        "all ns": {name: figures.median * 1e9 for name, figures in samples.items()},
        "shares": shares,
        "refused": refused,
    }


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row for each pair."""
    warnings.simplefilter("ignore")
    names = namespace({"torch", "jax", "tensorflow"})
    return [measure(pair, names, 40 if quick else 200) for pair in CANDIDATES]


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "One call, 16 float32 elements or 64 bytes",
        {
            "from": "",
            "to": "",
            "ours ns": ",.0f",
            "native ns": ",.0f",
            "ratio": ".2f",
            "spread": ".0%",
            "target": ".2f",
            "verdict": "",
            "best native": "",
        },
        notes=[
            "Spread: how far the middle half of the rounds lies apart. We copy `bytes` to torch, "
            "and NumPy arrays, bytearrays and memoryviews to JAX and TensorFlow; the rest we share."
        ],
    )
    section.rows = child.middle(
        "percall:rows", quick, by=lambda row: row["ratio"], times=1 if quick else 3
    )
    return asdict(section)
