"""Every test of feed leaves no thread behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.feeding import wait_for_feeders


@pytest.fixture(autouse=True)
def feeders_end() -> Iterator[None]:
    yield
    wait_for_feeders()
