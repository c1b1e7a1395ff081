"""Loads files to GPU memory on the fake driver, and saves from there, as the argument says."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import cupy
import numpy as np
from support.fake_gpu import driver, on_gpu

import tensorferry as ferry
from tensorferry.files import writing

folder = tempfile.mkdtemp()
path = os.path.join(folder, "x")
x = np.random.default_rng(1).standard_normal((1000, 300), dtype=np.float32)


def load() -> None:
    """From a file to a GPU."""
    for ending in (".npy", ".npz", ".safetensors"):
        ferry.save(path + ending, x)
        for mmap in (True, False):
            for dtype in (None, "float64"):
                y: Any = ferry.load(path + ending, "cupy", device="cuda:1", mmap=mmap, dtype=dtype)
                (y,) = y.values() if isinstance(y, dict) else (y,)
                assert type(y) is cupy.ndarray
                assert y.data.device_id == 1
                np.testing.assert_array_equal(y.get(), x)


def save_in_blocks() -> None:
    """From a GPU to a file, in pieces of several sizes."""
    y = on_gpu(x)
    for piece in (400, 1199, 1200, 1201, 100_000, 1 << 30):
        writing.BLOCK_BYTES = piece
        with ferry.trace() as trips:
            ferry.save(path + ".npy", y)
        rows = piece // 1200
        expected = {400: 3000, 1199: 2000}.get(piece) or -(-1000 // rows)
        assert len(trips) == expected, (piece, len(trips))
        np.testing.assert_array_equal(np.load(path + ".npy"), x)
        ferry.save(path + ".npz", {"a": y, "b": x[:3]})
        found = np.load(path + ".npz")
        np.testing.assert_array_equal(found["a"], x)
        np.testing.assert_array_equal(found["b"], x[:3])


def save_every_shape() -> None:
    """Pieces of tensors of every shape."""
    writing.BLOCK_BYTES = 1000
    for shape in ((1, 5000), (2, 1, 3000), (1, 1), (3, 700), (1, 2, 3, 400), (5000,), (0, 9)):
        y = np.random.default_rng(2).standard_normal(shape, dtype=np.float32)
        with ferry.trace() as trips:
            ferry.save(path + ".npy", on_gpu(y))
        assert max(trip.bytes_moved for trip in trips) <= 1000
        np.testing.assert_array_equal(np.load(path + ".npy"), y)


def fail_to_save() -> None:
    """A download that fails leaves the old file."""
    writing.BLOCK_BYTES = 100_000
    ferry.save(path + ".npy", x)
    y = on_gpu(x + 1)
    for late in (0, 2):
        driver.testdriver_fail(b"cuMemcpyDtoHAsync_v2", late, 719)
        try:
            ferry.save(path + ".npy", y)
        except ferry.FerryError:
            pass
        else:
            raise AssertionError("no error")
        np.testing.assert_array_equal(np.load(path + ".npy"), x)
        assert os.listdir(folder) == ["x.npy"]


CASES = {case.__name__: case for case in (load, save_in_blocks, save_every_shape, fail_to_save)}

CASES[sys.argv[1]]()
