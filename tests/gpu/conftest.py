"""Tests that need a CUDA GPU. Without one they fail: `make test-gpu` is for machines with one."""

from __future__ import annotations

import contextlib
import os

import pytest
from support import hang_guard, run_record
from support.gpu_selection import selection_of, split_quick

# Frameworks that take the whole GPU when they start would leave nothing for the others.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

# The order is the one in which the frameworks live together.
with contextlib.suppress(ImportError):
    import paddle  # noqa: F401
import torch

with contextlib.suppress(ImportError):
    import triton  # noqa: F401


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_guard, "hang_guard")
    if not torch.cuda.is_available():
        raise pytest.UsageError("there is no CUDA GPU here: `make test` runs what needs none")


def pytest_addoption(parser: pytest.Parser) -> None:
    run_record.add_option(parser)
    parser.addoption(
        "--quick",
        action="store_true",
        help="each test, pair of frameworks and value of a parameter once",
    )


@pytest.fixture(scope="session")
def is_quick(request: pytest.FixtureRequest) -> bool:
    """Whether the quick set runs, in which long tests repeat less."""
    return request.config.getoption("quick")


# Before pytest-split, which divides what is left.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        items[:], left_out = split_quick(items)
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    from matrix.check import TALLY

    selection = selection_of(config)
    cells = dict(sorted(TALLY.items()))
    # The names of files are added by `write`.
    name = [value for key, value in selection.items() if key != "files"]
    run_record.write(
        terminalreporter, config, name, selection=selection, **{"cells of the matrix": cells}
    )
