"""The bytes of bools: a copy on the host has 0 and 1, and a share has those of the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from support.introspect import FRAMEWORKS, INSPECTORS, paddle
from support.memory import aligned

import tensorferry as ferry

# The large ones are written past the caches, by several threads.
LAYOUTS: dict[str, Callable[[], np.ndarray]] = {
    "one": lambda: masks(1, 1)[0],
    "dense": lambda: masks(70, 90),
    "transposed": lambda: masks(70, 90).T,
    "sliced": lambda: masks(70, 90)[::3, 1::2],
    "flipped": lambda: masks(70, 90)[::-1, ::-1],
    "gapped": lambda: masks(70, 90)[:, 5:],
    "large": lambda: masks(2500, 2100),
    "large transposed": lambda: masks(2500, 2100).T,
    "large flipped": lambda: masks(2500, 2100)[:, ::-1],
}


def masks(rows: int, columns: int) -> np.ndarray:
    """Bools of any bytes, a third of them zero."""
    random = np.random.default_rng(5)
    raw = random.integers(1, 256, (rows, columns), dtype=np.uint8)
    raw[random.integers(0, 3, raw.shape) == 0] = 0
    return raw.view(bool)


def raw_of(mask: np.ndarray) -> np.ndarray:
    """The bytes of a mask, in row-major order."""
    return mask.view(np.uint8).reshape(-1)


def shown(target: str, result: Any) -> np.ndarray:
    """The bytes of a result, in row-major order."""
    return np.frombuffer(INSPECTORS[target].values(result), np.uint8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_copies_have_zeros_and_ones(target: str, layout: str) -> None:
    mask = LAYOUTS[layout]()
    for options in ({}, {"copy": True}, {"dtype": "bool", "copy": True}):
        action = ferry.plan(mask, target, **options).action
        found = shown(target, ferry.to(mask, target, **options))
        # PyTorch's own copy of a strided share, by which the test reads it, makes ones too.
        found = found if action == "copy" else found != 0
        assert np.array_equal(found, raw_of(mask) != 0), (options, action)
    assert action == "copy"


@pytest.mark.parametrize("target", [name for name in FRAMEWORKS if name != "mlx"])
def test_shares_have_the_bytes(target: str) -> None:
    raw = aligned(70 * 90)
    raw[:] = raw_of(masks(70, 90))
    result = ferry.to(raw.view(bool).reshape(70, 90), target, copy=False)
    assert np.array_equal(shown(target, result), raw)


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_trees(target: str) -> None:
    tree = {layout: make() for layout, make in LAYOUTS.items()}
    results = ferry.to({"masks": tree, "list": list(tree.values())}, target, copy=True)
    for result, mask in zip(
        [*results["masks"].values(), *results["list"]], [*tree.values()] * 2, strict=True
    ):
        assert np.array_equal(shown(target, result), raw_of(mask) != 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_out(layout: str) -> None:
    mask = LAYOUTS[layout]()
    for target, out in {
        "numpy": np.zeros(mask.shape, bool),
        "torch": torch.zeros(mask.shape, dtype=torch.bool),
        "paddle": paddle.zeros(mask.shape, "bool"),
    }.items():
        ferry.to(mask, target, out=out)
        assert np.array_equal(shown(target, out), raw_of(mask) != 0), target
    gapped = np.zeros((*mask.shape, 2), bool)[..., 0]
    ferry.to(mask, "numpy", out=gapped)
    assert np.array_equal(gapped.view(np.uint8).reshape(-1), raw_of(mask) != 0)


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_tensors_of_torch(target: str) -> None:
    raw = torch.from_numpy(raw_of(masks(70, 90)))
    result = ferry.to(raw.view(torch.bool), target, copy=True)
    assert np.array_equal(shown(target, result), raw.numpy() != 0)


def test_another_process_gets_zeros_and_ones() -> None:
    """The copy to shared memory is one on the host; attaching shares it."""
    mask = masks(70, 90)
    with ferry.publish(mask) as ticket:
        result = ferry.attach(str(ticket), "numpy")
        assert np.array_equal(raw_of(result), raw_of(mask) != 0)


def test_files_and_pickles_have_the_bytes(tmp_path: Path) -> None:
    mask = masks(70, 90)
    ferry.save(tmp_path / "x.npy", mask)
    carried = ferry.load(tmp_path / "x.npy"), ferry.pickling.loads(*ferry.pickling.dumps(mask))
    for result in carried:
        assert np.array_equal(raw_of(result), raw_of(mask))


@pytest.mark.parametrize("target", ["csr", "csc", "coo", "dense"])
@pytest.mark.parametrize("source", ["csr", "csc", "coo"])
def test_values_of_sparse_tensors(source: str, target: str) -> None:
    values = np.array([2, 1, 0, 255, 128], np.uint8).view(bool)
    coordinates = ([0, 1, 2, 3, 4], [4, 2, 3, 1, 0])
    expected = np.zeros((5, 5), np.uint8)
    expected[coordinates] = raw_of(values) != 0
    x = scipy.sparse.coo_array((values, coordinates), shape=(5, 5)).asformat(source)
    # SciPy's own conversion keeps the bytes too.
    assert x.data.view(np.uint8).max() == 255
    if target == "dense":
        result = ferry.sparse.to_dense(x, "numpy")
    else:
        made = ferry.sparse.to(x, "scipy", format=target, copy=True)
        assert set(raw_of(made.data)) <= {0, 1}
        result = made.toarray()
    assert np.array_equal(result.view(np.uint8), expected)
