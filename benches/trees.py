"""What a leaf of a tree costs, against one call: a dict of 1,000 small NumPy arrays to torch.

To add a tree, give it an entry in `TREES`.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from table import Section, verdict

from tensorferry._tools.bench.measure import interleave, make_timer
from tensorferry._tools.bench.timings import Timing, quickest, ratio, spread

LEAVES = 1000
LIMIT = 1.2

TREES: dict[str, Callable[[list[np.ndarray]], Any]] = {
    "a dict": lambda arrays: {f"layer.{i}": array for i, array in enumerate(arrays)},
    "a dict of lists of 10": lambda arrays: {
        f"layer.{i}": arrays[i : i + 10] for i in range(0, len(arrays), 10)
    },
}
OURS = 'ferry.to(tree, "torch")'
# The same arrays and as many results at a time: memory that is out of the caches costs both alike.
SINGLE = '[ferry.to(x, "torch") for x in arrays]'
# What there is without us: PyTorch's own trees, and JAX's.
NATIVE = ["torch_map(torch.from_numpy, tree)", "jax_map(torch.from_numpy, tree)"]


def check(tree: Any, result: Any) -> None:
    """The same shape, and every leaf a share."""
    if isinstance(tree, np.ndarray):
        if result.data_ptr() != tree.ctypes.data or not np.array_equal(result.numpy(), tree):
            raise AssertionError("a leaf is not a share of its source")
    elif isinstance(tree, dict):
        if tree.keys() != result.keys():
            raise AssertionError("the keys differ")
        for key in tree:
            check(tree[key], result[key])
    else:
        for one, other in zip(tree, result, strict=True):
            check(one, other)


def run(quick: bool) -> dict[str, Any]:
    import jax
    import torch
    from torch.utils import _pytree

    import tensorferry as ferry

    values = np.random.default_rng().standard_normal((LEAVES, 16), np.float32)
    arrays = [row.copy() for row in values]
    names = {"ferry": ferry, "torch": torch, "arrays": arrays}
    names |= {"torch_map": _pytree.tree_map, "jax_map": jax.tree.map}
    section = Section(
        f"Trees of {LEAVES:,} NumPy arrays of 16 float32 to torch, per leaf",
        {
            "tree": "",
            "leaf ns": ",.0f",
            "single ns": ",.0f",
            "ratio": ".2f",
            "spread": ".0%",
            "target": ".2f",
            "verdict": "",
            "native leaf ns": ",.0f",
            "to native": ".2f",
            "best native": "",
        },
        notes=["Ratio: a leaf against one call of ours for each of the same arrays, in a list."],
    )
    for title, make in TREES.items():
        tree = make(arrays)
        scope = {**names, "tree": tree}
        for candidate in [OURS, *NATIVE]:
            check(tree, eval(candidate, scope))
        jobs = {code: make_timer(code, scope) for code in [OURS, SINGLE, *NATIVE]}
        samples = interleave(jobs, rounds=40 if quick else 200, batch=0.004, budget=20)
        leaf = {code: per_leaf(samples[code]) for code in [OURS, SINGLE, *NATIVE]}
        best = quickest({code: leaf[code] for code in NATIVE})
        figure = ratio(leaf[OURS], leaf[SINGLE])
        section.rows.append(
            {
                "tree": title,
                "leaf ns": leaf[OURS].median * 1e9,
                "single ns": leaf[SINGLE].median * 1e9,
                "ratio": figure,
                "spread": spread(leaf[OURS], leaf[SINGLE]),
                "target": LIMIT,
                "verdict": verdict(figure <= LIMIT),
                "native leaf ns": leaf[best].median * 1e9,
                "to native": ratio(leaf[OURS], leaf[best]),
                "best native": f"`{best}`",
            }
        )
    return asdict(section)


def per_leaf(timing: Timing) -> Timing:
    return Timing([seconds / LEAVES for seconds in timing.rounds], timing.calls * LEAVES)
