"""Awkward arrays: regular ones convert, and the hint for the others works."""

from __future__ import annotations

from typing import Any

import awkward
import pytest
import torch
from support.followed_hints import follow

import tensorferry as ferry


def test_a_regular_array_converts() -> None:
    assert ferry.to(awkward.Array([[1, 2], [3, 4]]), "torch").tolist() == [[1, 2], [3, 4]]


def test_out_that_is_a_regular_array() -> None:
    x, out = torch.ones(2, 2), awkward.Array([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.to(x.double(), "numpy", out=out)
    ferry.to(x.double(), "numpy", out=follow(caught.value, out=out))
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1], [2, 3]], [[1, 0], [2, 3]]),
        ([[1, None], [2]], [[1, 0], [2, 0]]),
        ([1, None], [1, 0]),
    ],
)
def test_the_hint_for_a_ragged_array_works(rows: Any, expected: Any) -> None:
    x = awkward.Array(rows)
    for read in (ferry.to, ferry.plan, ferry.arrow.to):
        with pytest.raises(ferry.NotATensorError) as caught:
            read(x, "torch")
        result = follow(caught.value, x=x, awkward=awkward, framework="torch")
        assert result.tolist() == expected
