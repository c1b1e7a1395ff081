"""Tests of every form, which are collected and not run. A test installs it as `test_parts`."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(("source", "target"), [("torch", "jax"), ("jax", "torch")])
def test_pair(source: str, target: str, dtype: str) -> None:
    """A pair of frameworks with another parameter."""


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sizes(size: int) -> None:
    """A parameter that is not a framework."""


@pytest.mark.one_case
@pytest.mark.parametrize("page", ["first", "second"])
def test_pages(page: str) -> None:
    """A parameter whose values make no difference."""


@pytest.mark.not_quick
def test_slow() -> None:
    """A test that takes long."""


class TestGroup:
    """A class with a test of the same name."""

    @pytest.mark.parametrize("size", [1, 2])
    def test_sizes(self, size: int) -> None:
        """A parameter that is not a framework."""


def test_plain() -> None:
    """A test without parameters."""
