"""Datasets of Hugging Face with a transform, which their columns do not show, are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasets
import pyarrow as pa
import pytest
import torch
from support.followed_hints import follow

import tensorferry as ferry

VALUES = [1.5, 2.5, 3.5]
DATASET = datasets.Dataset(pa.table({"y": VALUES}))


def tenfold(batch: dict[str, list[float]]) -> dict[str, Any]:
    return {"y": [10 * y for y in batch["y"]]}


def set_transform(dataset: Any) -> Any:
    changed = dataset.with_format(None)
    changed.set_transform(tenfold)
    return changed


@pytest.mark.parametrize("make", [lambda d: d.with_transform(tenfold), set_transform])
@pytest.mark.parametrize(
    "call",
    [ferry.arrow.to, ferry.arrow.plan, lambda x, target: ferry.arrow.batches(x, 2, target)],
)
def test_a_transform_is_not_skipped(
    make: Callable[[Any], Any], call: Callable[[Any, str], Any]
) -> None:
    x = make(DATASET)
    with pytest.raises(ferry.UnsupportedError) as caught:
        call(x, "numpy")
    rows = follow(caught.value, x=x, torch=torch, framework="numpy")
    assert [row["y"].tolist() for row in rows] == [[10 * y] for y in VALUES]
    assert "pass x.with_format(None)" in caught.value.hint
    plain = x.with_format(None)
    call(plain, "numpy")
    assert ferry.arrow.to(plain, "numpy")["y"].tolist() == VALUES


def test_the_hint_of_a_feed_does_not_skip_a_transform() -> None:
    with pytest.raises(ferry.NotATensorError) as caught:
        list(ferry.feed(DATASET.with_transform(tenfold), "numpy"))
    assert "ferry.arrow" not in caught.value.hint
