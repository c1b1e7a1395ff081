"""One other process for all the tests that need no fresh one: to import PyTorch takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.peer_processes import Peer


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """A process that has NumPy and PyTorch."""
    with Peer("torch") as made:
        yield made
