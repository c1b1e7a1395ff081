"""Selects tests as tests/gpu/conftest.py does. A test installs it as `conftest`."""

from __future__ import annotations

import pytest
from support.gpu_selection import selection_of, split_quick


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option of the quick set."""
    parser.addoption("--quick", action="store_true")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the quick set, if it is asked for."""
    if config.getoption("quick"):
        items[:], _ = split_quick(items)


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    """Prints the selection that a record would name."""
    return f"selection: {selection_of(config)}"
