"""Models in several files: whole at any time, and nothing left behind."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tensorferry as ferry


def model(value: float, count: int = 6) -> dict[str, np.ndarray]:
    return {f"w{i}": np.full((i + 1, 10), value) for i in range(count)}


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x)


def test_a_model_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "m.safetensors.index.json"
    ferry.save(path, model(1), shard_bytes=500)
    first = set(os.listdir(tmp_path))
    old = ferry.load(path, "numpy")
    ferry.save(path, model(2, 4), shard_bytes=300)
    second = set(os.listdir(tmp_path))
    same(ferry.load(path, "numpy"), model(2, 4))
    # Maps of the old files keep their values; the files are gone.
    same(old, model(1))
    assert first & second == {path.name}
    ferry.save(path, model(3), shard_bytes=300)
    same(ferry.load(path, "numpy"), model(3))


def test_a_save_that_fails_leaves_the_old_model_alone(tmp_path):
    path = tmp_path / "m.safetensors.index.json"
    ferry.save(path, model(1), shard_bytes=500)
    before = set(os.listdir(tmp_path))

    class Broken:
        """Says that it is a tensor, and then has no memory."""

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked > 1:
                raise RuntimeError("gone")
            return np.ones(400)

    with pytest.raises(Exception, match="gone"):
        ferry.save(path, {**model(2), "last": Broken()}, shard_bytes=500)
    assert set(os.listdir(tmp_path)) == before
    same(ferry.load(path, "numpy"), model(1))


def test_files_of_others_are_not_touched(tmp_path):
    """Neither those that have the name already, nor what an index that is none names."""
    other = tmp_path / "m-00001-of-00001.safetensors"
    other.write_bytes(b"mine")
    (tmp_path / "precious").write_bytes(b"mine too")
    path = tmp_path / "m.index.json"
    path.write_text('{"weight_map": {"w0": "precious", "w1": "../outside"}}')
    ferry.save(path, model(1))
    same(ferry.load(path, "numpy"), model(1))
    assert other.read_bytes() == b"mine"
    assert (tmp_path / "precious").read_bytes() == b"mine too"


def test_one_tensor_and_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ferry.save("x.safetensors.index.json", np.arange(3))
    assert ferry.load("x.safetensors.index.json", names="tensor").tolist() == [0, 1, 2]
    assert sorted(os.listdir()) == ["x-00001-of-00001.safetensors", "x.safetensors.index.json"]


@pytest.mark.parametrize(
    ("tree", "given", "fact"),
    [
        (model(1), {"shard_bytes": 0}, "shard_bytes"),
        (model(1), {"shard_bytes": "5GB"}, "shard_bytes"),
        (model(1), {"compression": 3}, "not compressed"),
        ({}, {}, "no tensors"),
    ],
)
def test_refusals(tmp_path, tree, given, fact):
    with pytest.raises(ferry.InvalidArgument, match=fact) as caught:
        ferry.save(tmp_path / "m.index.json", tree, **given)
    assert caught.value.hint
    assert os.listdir(tmp_path) == []
