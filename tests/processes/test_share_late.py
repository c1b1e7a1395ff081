"""Consumers that read late, and producers that run out: nobody gets another's values."""

from __future__ import annotations

import pytest
from support.subprocesses import run_program


@pytest.mark.parametrize("writable", ["True", "False"])
def test_memory_on_its_way_to_a_late_reader_is_not_used_again(writable: str) -> None:
    assert run_program("processes/share_to_a_late_reader.py", writable) == ""


def test_a_ticket_for_one_outlives_a_producer_without_descriptors() -> None:
    assert run_program("processes/share_without_descriptors.py") == ""


def test_many_large_tensors_with_few_descriptors() -> None:
    """A descriptor for each on either side, and no more."""
    assert run_program("processes/share_many_large_tensors.py") == ""
