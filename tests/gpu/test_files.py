"""Files and the memory of a real GPU: every framework, every format, pieces and pending work."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry
from tensorferry.files import writing

MIB = 1 << 20
FILES = ("x.npy", "x.npz", "x.safetensors", "x.pb", "x.raw")


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(11).standard_normal(shape, dtype=np.float32)


def only(loaded: object) -> object:
    if isinstance(loaded, dict):
        (loaded,) = loaded.values()
    return loaded


@pytest.mark.parametrize("name", GPU_FRAMEWORKS)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("shape", [(), (0, 3), (7, 5), (1100, 1300), (70, 512, 1024)])
def test_from_a_gpu_to_a_file_and_back(tmp_path, name, file, shape):
    host, path = numbers(shape), tmp_path / file
    ferry.save(path, GPU_FRAMEWORKS[name].make(host), durable=False)
    load = ferry.load
    if file == "x.raw":
        load = functools.partial(ferry.load_raw, dtype="float32", shape=shape)
    assert np.array_equal(only(load(path, "numpy")), host)
    for mmap in (True, False):
        found = only(load(path, name, device="cuda", mmap=mmap))
        assert GPU_FRAMEWORKS[name].on_gpu(found)
        assert np.array_equal(GPU_FRAMEWORKS[name].host(found), host)


@pytest.mark.parametrize("name", GPU_FRAMEWORKS)
def test_what_others_wrote(tmp_path, name):
    host = numbers((300, 500))
    for number, written in enumerate((host, np.asfortranarray(host), host.astype(">f4"))):
        path = tmp_path / f"{number}.npy"
        np.save(path, written)
        found = ferry.load(path, name, device="cuda")
        assert np.array_equal(GPU_FRAMEWORKS[name].host(found), host)
    half = ferry.load(tmp_path / "0.npy", name, device="cuda", dtype="float16")
    assert np.array_equal(GPU_FRAMEWORKS[name].host(half), host.astype(np.float16))


@pytest.mark.parametrize("name", GPU_FRAMEWORKS)
def test_pieces(tmp_path, monkeypatch, name):
    host = numbers((101, 30))
    x = GPU_FRAMEWORKS[name].make(host)
    # The bytes of an element, of a part of a row, of rows, and of more than all.
    for block in (1, 120 // 2, 120 * 10, 120 * 33, 1 << 30):
        monkeypatch.setattr(writing, "BLOCK_BYTES", block)
        ferry.save(tmp_path / "x.npy", x, durable=False)
        assert np.array_equal(np.load(tmp_path / "x.npy"), host)


def test_views_and_trees(tmp_path):
    x = torch.randn(3000, 4000, device="cuda")
    tree = {"t": x.T, "part": x[100:2000:3, ::2], "host": torch.ones(5), "half": x.half()}
    ferry.save(tmp_path / "x.safetensors", tree, durable=False)
    found = ferry.load(tmp_path / "x.safetensors", "torch", device="cuda")
    assert found.keys() == tree.keys()
    for name, expected in tree.items():
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name], expected.cuda())


def test_what_is_still_being_computed(tmp_path):
    """The bytes are those that the source's stream gives, and not those before."""
    x = torch.zeros(40 * MIB, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.fill_(3)
        ferry.save(tmp_path / "x.npy", x, durable=False)
    found = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert (found == 3).all()


def test_a_save_that_fails_keeps_the_old_file(tmp_path):
    x = torch.randn(1000, device="cuda")
    ferry.save(tmp_path / "x.npz", {"x": x})
    with pytest.raises(ferry.FerryError):
        ferry.save(tmp_path / "x.npz", {"x": x + 1, "y": "no tensor"})
    assert torch.equal(ferry.load(tmp_path / "x.npz", "torch", device="cuda")["x"], x)
    assert os.listdir(tmp_path) == ["x.npz"]
