"""What the tests of Ray, Dask and joblib share: the guard against hangs, and the quick set.

They have an environment of their own (`make test-distributed`). `--quick` runs each test function,
each framework and each layout once; with Ray and joblib NumPy, PyTorch and JAX.
"""

from __future__ import annotations

import pytest
from support import hang_guard
from support.gpu_selection import split_quick

SLOW_FRAMEWORKS = ("tensorflow", "paddle")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_guard, "hang_guard")
    # Ray does not wait for the processes of a cluster that it has shut down.
    ignored = r"ignore:subprocess \d+ is still running:ResourceWarning"
    config.addinivalue_line("filterwarnings", ignored)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="each test and each value of a parameter once"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        some = [item for item in items if not needs_slow_workers(item)]
        chosen, _ = split_quick(some)
        left_out = [item for item in items if item not in chosen]
        items[:] = chosen
        config.hook.pytest_deselected(items=left_out)


def needs_slow_workers(item: pytest.Item) -> bool:
    """Whether a test starts processes for a framework that takes seconds to import. Those of Dask
    import all frameworks once."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    is_slow = any(
        value in SLOW_FRAMEWORKS for value in parameters.values() if isinstance(value, str)
    )
    return is_slow and "dask" not in item.path.parts
