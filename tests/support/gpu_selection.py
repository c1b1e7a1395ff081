"""Selects GPU tests: a quick set, and shards of equal time."""

from __future__ import annotations

import pytest

# The parameters that name a pair of frameworks.
PAIR_PARAMETERS = ("source", "target", "caller", "body")


def split_quick(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Splits tests into the quick set and the others. The quick set has the first case of each test
    function, and of a function with pairs of frameworks the first case of each pair."""
    quick: dict[tuple[object, ...], pytest.Item] = {}
    for item in items:
        quick.setdefault(_key(item), item)
    chosen = set(quick.values())
    return [item for item in items if item in chosen], [
        item for item in items if item not in chosen
    ]


def _key(item: pytest.Item) -> tuple[object, ...]:
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec is not None else {}
    pair = tuple(str(parameters.get(name)) for name in PAIR_PARAMETERS)
    return (item.nodeid.split("[")[0], *pair)


def selection_of(config: pytest.Config) -> dict[str, str]:
    """What a run selects, for its record; empty for all tests."""
    selection = {}
    if config.getoption("quick"):
        selection["set"] = "quick"
    # Options of pytest-split, which a machine with a GPU need not have.
    if splits := config.getoption("splits", None):
        selection["shard"] = f"{config.getoption('group')}-of-{splits}"
    return selection
