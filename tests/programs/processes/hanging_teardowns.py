"""Tests whose teardown hangs, after a test that passes and after one that fails.

`processes/test_hang_guard.py` has them run by a pytest of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support import hang_guard


def hangs_for_good() -> None:
    """Waits for an event that nobody sets."""
    threading.Event().wait()


@pytest.fixture
def _hangs_at_the_end() -> Iterator[None]:
    yield
    hangs_for_good()


# The limit becomes short in the test itself, so that nothing before is held to it.
@pytest.mark.usefixtures("_hangs_at_the_end")
@pytest.mark.parametrize("condition", [True, False], ids=["met", "unmet"])
def test_a_condition(condition: bool) -> None:
    hang_guard.TEST_SECONDS = 1
    assert condition
