"""A time limit for every test that only a hang reaches.

The outcome of a test does not depend on the speed of the machine. The limit is far above what any
test takes on a loaded machine, and above `children.HANG_SECONDS`, so that a wait inside a test
fails first and names what it waits for.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

TEST_SECONDS, SLOW_TEST_SECONDS = 1800, 7200

_standard_error = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # pytest has not redirected the descriptor yet.
    config.stash[_standard_error] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_standard_error])


def _arm(item: pytest.Item) -> None:
    """Starts the limit anew. At its end the process exits, and shows where each thread is."""
    slow = item.get_closest_marker("slow") is not None
    faulthandler.dump_traceback_later(
        SLOW_TEST_SECONDS if slow else TEST_SECONDS,
        exit=True,
        file=item.config.stash[_standard_error],
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Limits a test, including one that hangs with the GIL held. With several workers, pytest
    reports the test as failed."""
    _arm(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Limits the teardown too: pytest cancels the limit when a test fails."""
    _arm(item)
    return (yield)
