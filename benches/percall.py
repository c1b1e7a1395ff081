"""What one call costs: 16 float32 elements (or 64 bytes), from each kind to each framework.

The pairs and their one-liners are in `pairs.py`. Every candidate is tried first. It counts if its
type, dtype and values are right; the quickest stands, and the table says where it copies. A full
run measures in three processes, and the middle ratio of each pair stands.
"""

import warnings
from dataclasses import asdict
from typing import Any

import child
from pairs import COPIED, FRAMEWORKS, PAIRS, as_tensor, candidates, namespace, source
from table import Section, verdict

from tensorferry._tools import introspect
from tensorferry._tools.bench import check
from tensorferry._tools.bench.measure import interleave, make_timer
from tensorferry._tools.bench.timings import quickest, ratio, spread


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


def measure(pair: tuple[str, str], names: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Checks and measures one pair; gives its row of the table."""
    kind, target = pair
    x = source(kind)
    names = {**names, "x": x}
    framework, tensor = as_tensor(kind, x)
    expected = introspect.values(framework, tensor)

    def error(result: Any) -> str:
        return check.describe_error(result, target, "cpu", tensor, framework, expected)

    ours = f'ferry.to(x, "{target}")'
    shares: dict[str, bool | None] = {}
    refused: dict[str, str] = {}
    for candidate in [ours, *candidates(pair)]:
        try:
            result = eval(candidate, names)
        except Exception as raised:
            if candidate == ours:
                raise
            refused[candidate] = type(raised).__name__
            continue
        if wrong := error(result):
            refused[candidate] = wrong
        else:
            shares[candidate] = check.shares(tensor, framework, result, target)
    we_share = pair not in COPIED
    if shares.get(ours) is not we_share:
        found = refused.get(ours, "shared" if shares.get(ours) else "not shared")
        raise AssertionError(f"{ours} of {kind}: {found}")

    samples = interleave(
        {candidate: make_timer(candidate, names) for candidate in shares},
        rounds=rounds,
        batch=0.001,
        budget=10,
    )
    if wrong := error(eval(ours, names)):
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
        "verdict": verdict(figure <= most),
        "best native": f"`{best}`" + ("" if shares[best] else " (copies)"),
        "all ns": {name: figures.median * 1e9 for name, figures in samples.items()},
        "shares": shares,
        "refused": refused,
    }


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row for each pair."""
    warnings.simplefilter("ignore")
    names = namespace(FRAMEWORKS)
    return [measure(pair, names, 40 if quick else 200) for pair in PAIRS]


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
