"""Models in several files: whole at any time, and nothing left behind."""

from __future__ import annotations

import json
import os
import threading

import ml_dtypes
import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.files import writing


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
    assert len(first) == 5
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

    class FailingArray:
        """Says that it is a tensor, and then has no memory."""

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked > 1:
                raise RuntimeError("gone")
            return np.ones(400)

    with pytest.raises(Exception, match="gone"):
        ferry.save(path, {**model(2), "last": FailingArray()}, shard_bytes=500)
    assert set(os.listdir(tmp_path)) == before
    same(ferry.load(path, "numpy"), model(1))


def test_readers_find_a_whole_model_while_it_is_replaced(tmp_path):
    path = tmp_path / "m.safetensors.index.json"
    ferry.save(path, model(0), shard_bytes=300, durable=False)
    wrong: list[object] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                found = ferry.load(path, "numpy")
                if len({float(x.flat[0]) for x in found.values()}) != 1 or len(found) != 6:
                    wrong.append(found)
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for value in range(1, 60):
        ferry.save(path, model(value), shard_bytes=300, durable=False)
    over.set()
    for reader in readers:
        reader.join()
    assert not wrong, wrong[:3]


@pytest.mark.parametrize("late", [False, True])
def test_an_interruption_leaves_a_whole_model(tmp_path, monkeypatch, late):
    """The old one before the index is there, and the new one from then on."""
    path = tmp_path / "m.safetensors.index.json"
    ferry.save(path, model(1), shard_bytes=500)
    write = writing._write_file

    def interrupted(name: str, *arguments: object, **options: object) -> None:
        if name == str(path) and not late:
            raise KeyboardInterrupt
        write(name, *arguments, **options)
        if name == str(path):
            raise KeyboardInterrupt

    monkeypatch.setattr(writing, "_write_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ferry.save(path, model(2), shard_bytes=500)
    same(ferry.load(path, "numpy"), model(2 if late else 1))
    if not late:
        assert len(os.listdir(tmp_path)) == 5


def test_two_savers_do_not_mix(tmp_path):
    path = tmp_path / "m.safetensors.index.json"
    failures: list[BaseException] = []

    def work(value: int) -> None:
        try:
            for _ in range(10):
                ferry.save(path, model(value), shard_bytes=300, durable=False)
        except BaseException as error:
            failures.append(error)

    savers = [threading.Thread(target=work, args=(value,)) for value in (1, 2)]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    assert not failures, failures
    found = ferry.load(path, "numpy")
    same(found, model(float(found["w0"][0, 0])))


@pytest.mark.parametrize("seen", [True, False])
def test_files_of_others_are_not_touched(tmp_path, seen):
    """Neither what an index that is none names, nor what was not made for this one."""
    ferry.save(tmp_path / "precious.safetensors", {"w": np.ones(3)})
    path = tmp_path / "m.index.json"
    outside = "precious.safetensors" if seen else "../outside"
    path.write_text(json.dumps({"weight_map": {"w": outside}}))
    before = (tmp_path / "precious.safetensors").read_bytes()
    ferry.save(path, model(1))
    same(ferry.load(path, "numpy"), model(1))
    assert (tmp_path / "precious.safetensors").read_bytes() == before


def test_a_copy_of_an_index_keeps_its_files(tmp_path):
    path, backup = tmp_path / "m.index.json", tmp_path / "backup.index.json"
    ferry.save(path, model(1), shard_bytes=500)
    backup.write_bytes(path.read_bytes())
    ferry.save(path, model(2), shard_bytes=500)
    same(ferry.load(backup, "numpy"), model(1))
    same(ferry.load(path, "numpy"), model(2))


def test_an_index_that_is_a_link(tmp_path):
    """What it points to is replaced, and the files lie beside that."""
    (tmp_path / "v1").mkdir()
    real, link = tmp_path / "v1" / "m.index.json", tmp_path / "current.index.json"
    ferry.save(real, model(1))
    link.symlink_to(real)
    ferry.save(link, model(2))
    same(ferry.load(real, "numpy"), model(2))
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["current.index.json", "v1"]


def test_one_tensor_and_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ferry.save("x.safetensors.index.json", np.arange(3))
    assert ferry.load("x.safetensors.index.json", names="tensor").tolist() == [0, 1, 2]
    assert len(os.listdir()) == 2


@pytest.mark.parametrize(
    ("tree", "given", "fact"),
    [
        (model(1), {"shard_bytes": 0}, "shard_bytes"),
        (model(1), {"shard_bytes": "5GB"}, "shard_bytes"),
        (model(1), {"shard_bytes": True}, "shard_bytes"),
        (model(1), {"compression": 3}, "safetensors"),
        (model(1), {"metadata": {"total_size": "9"}}, "total_size"),
        ({}, {}, "one tensor"),
    ],
)
def test_refusals(tmp_path, tree, given, fact):
    with pytest.raises(ferry.InvalidArgumentError, match=fact) as caught:
        ferry.save(tmp_path / "m.index.json", tree, **given)
    assert caught.value.hint
    assert os.listdir(tmp_path) == []


def test_names_and_sizes_that_other_formats_do_not_have(tmp_path):
    with pytest.raises(ferry.InvalidArgumentError, match=r"shard_bytes.*\nhint: "):
        ferry.save(tmp_path / "x.npy", np.ones(2), shard_bytes=10)
    with pytest.raises(ferry.InvalidArgumentError, match="hint: "):
        ferry.save(os.fsencode(tmp_path) + b"/\xff.index.json", model(1))
    # Types of less than a byte have one each.
    x = np.ones(1000, ml_dtypes.int4)
    ferry.save(tmp_path / "m.index.json", {"a": x, "b": x}, shard_bytes=1500)
    index = json.loads((tmp_path / "m.index.json").read_text())
    assert index["metadata"]["total_size"] == 2000
    assert len(set(index["weight_map"].values())) == 2
