"""Selects GPU tests: a quick set, and shards of equal time."""

from __future__ import annotations

from pathlib import Path

import pytest

# The parameters that name a pair of frameworks.
PAIR_PARAMETERS = ("source", "target", "caller", "body")


def split_quick(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Splits tests into the quick set and the others. The quick set has a case of each test
    function, of each pair of frameworks, and of each value of the other parameters. Of functions
    with the marker `one_case` it has the first case alone, and none with the marker `not_quick`."""
    candidates = [item for item in items if item.get_closest_marker("not_quick") is None]
    chosen: set[pytest.Item] = set()
    seen: set[tuple[object, ...]] = set()
    for keys_of in (_pair, _values):
        for item in candidates:
            keys = keys_of(item)
            if item not in chosen and not seen.issuperset(keys):
                chosen.add(item)
            if item in chosen:
                seen.update(keys, _values(item))
    return [item for item in items if item in chosen], [
        item for item in items if item not in chosen
    ]


def _parameters(item: pytest.Item) -> dict[str, str]:
    """What tells the value of each parameter from its other values."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.get_closest_marker("one_case") is not None:
        return {}
    return {name: repr(value) for name, value in callspec.params.items()}


def _pair(item: pytest.Item) -> set[tuple[object, ...]]:
    """The function and its pair of frameworks."""
    parameters = _parameters(item)
    return {(_function(item), *(parameters.get(name) for name in PAIR_PARAMETERS))}


def _values(item: pytest.Item) -> set[tuple[object, ...]]:
    """The function with each value of a parameter."""
    return {(_function(item), name, value) for name, value in _parameters(item).items()}


def _function(item: pytest.Item) -> str:
    return item.nodeid.split("[")[0]


def selection_of(config: pytest.Config) -> dict[str, str]:
    """What a run selects, for its record; empty for all tests."""
    selection = {}
    if config.getoption("quick"):
        selection["set"] = "quick"
    if files := [Path(path).name for path in config.args if path.endswith(".py")]:
        selection["files"] = " ".join(sorted(files))
    # Options of pytest-split, which a machine with a GPU need not have.
    if splits := config.getoption("splits", None):
        selection["shard"] = f"{config.getoption('group')}-of-{splits}"
    return selection
