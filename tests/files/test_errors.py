"""Every error about a file is a FerryError with the path and a hint, and the builtin class."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from support import subprocesses
from support.refusals import fact_and_hint

import tensorferry as ferry

X = np.arange(6, dtype=np.float32)
FILES = ("x.npy", "x.npz", "x.safetensors", "x.safetensors.index.json", "x.pb", "x.raw")


def load(path: Any) -> Any:
    if str(path).endswith(".raw"):
        return ferry.load_raw(path, dtype="float32")
    return ferry.load(path, mmap=False)


def inspect(path: Any) -> Any:
    return ferry.inspect(path, dtype="float32" if str(path).endswith(".raw") else None)


def save(path: Any) -> None:
    ferry.save(path, X)


READERS: dict[str, Callable[[Any], Any]] = {"load": load, "inspect": inspect}
CALLS = READERS | {"save": save}


def check(call: Callable[[], Any], builtin: type[Exception], path: Any) -> None:
    with pytest.raises(ferry.FerryError) as caught:
        call()
    assert isinstance(caught.value, builtin), repr(caught.value)
    assert str(path) in fact_and_hint(caught.value)[0]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_missing_folder(tmp_path, call, file):
    check(lambda: call(tmp_path / "no" / file), FileNotFoundError, tmp_path / "no")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("call", READERS.values(), ids=READERS)
def test_missing_file(tmp_path, call, file):
    check(lambda: call(tmp_path / file), FileNotFoundError, tmp_path / file)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_directory(tmp_path, call, file):
    (tmp_path / file).mkdir()
    check(lambda: call(tmp_path / file), Exception, tmp_path / file)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_file_as_a_folder(tmp_path, call, file):
    (tmp_path / "x").write_bytes(b"")
    check(lambda: call(tmp_path / "x" / file), NotADirectoryError, tmp_path / "x")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_names_that_the_system_refuses(tmp_path, call):
    check(lambda: call(tmp_path / ("x" * 300 + ".npy")), OSError, tmp_path)
    check(lambda: call(f"{tmp_path}/x\0y.npy"), OSError, tmp_path)
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    check(lambda: call(tmp_path / "loop.npy"), OSError, tmp_path / "loop.npy")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("path", [None, 3, X, ["x.npy"]], ids=type)
def test_objects_that_are_not_paths(call, path):
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        call(path)
    fact, hint = fact_and_hint(caught.value)
    assert type(path).__name__ in fact
    assert "pathlib" in hint


@pytest.mark.parametrize("call", CALLS)
def test_permissions(tmp_path, call):
    """In a process without privileges: root may open every file."""
    (tmp_path / "closed").mkdir()
    ferry.save(tmp_path / "closed" / "x.npy", X)
    ferry.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").chmod(0)
    (tmp_path / "closed").chmod(0o500)
    subprocesses.run_program("files/without_permission.py", str(tmp_path), call)


@pytest.mark.parametrize("file", [file for file in FILES if file != "x.raw"])
@pytest.mark.parametrize("call", READERS.values(), ids=READERS)
def test_truncated_files(tmp_path, call, file):
    path = tmp_path / file
    ferry.save(path, X)
    if file.endswith(".json"):
        path = next(tmp_path.glob("*.safetensors"))  # a shard of the index
    content = path.read_bytes()
    # Where the readers of the headers alone can notice.
    for size in {len(content) // 2, 20, 5, 0}:
        path.write_bytes(content[:size])
        check(lambda: call(tmp_path / file), ValueError, path.name)


def test_truncated_raw_bytes(tmp_path):
    (tmp_path / "x.raw").write_bytes(bytes(23))
    check(lambda: load(tmp_path / "x.raw"), ValueError, tmp_path / "x.raw")


@pytest.mark.parametrize("file", [file for file in FILES if file not in ("x.raw", "x.pb")])
@pytest.mark.parametrize("content", [b"hello, this is not a tensor", b"\x80\x04]", b"\x1f\x8b\x08"])
@pytest.mark.parametrize("call", READERS.values(), ids=READERS)
def test_content_that_is_not_of_the_format(tmp_path, call, file, content):
    (tmp_path / file).write_bytes(content)
    check(lambda: call(tmp_path / file), ValueError, tmp_path / file)


@pytest.mark.parametrize("call", READERS.values(), ids=READERS)
@pytest.mark.parametrize("file", ["m.safetensors", "pytorch_model.bin", f"{'m' * 200}.npy", "m.pt"])
def test_checkpoints_of_pytorch_under_any_name(tmp_path, call, file):
    torch.save({"w": torch.ones(2)}, tmp_path / file)
    with pytest.raises(ferry.FileFormatError, match="a PyTorch checkpoint with a pickle") as caught:
        call(tmp_path / file)
    assert "torch.load(weights_only=True)" in caught.value.hint


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("file", ["x", "x.txt", "x.safetensor"])
def test_unknown_extensions(tmp_path, call, file):
    if call is not save:
        (tmp_path / file).write_bytes(b"hello")
    check(lambda: call(tmp_path / file), ValueError, tmp_path / file)


@pytest.mark.parametrize("file", ["x.npz", "x.safetensors", "x.safetensors.index.json"])
@pytest.mark.parametrize("names", ["b", ["a", "b"], "b*"])
def test_unknown_names(tmp_path, file, names):
    ferry.save(tmp_path / file, {"a": X})
    check(lambda: ferry.load(tmp_path / file, names=names), ValueError, tmp_path / file)


SAVES: dict[str, tuple[str, Any, dict[str, Any], type[Exception]]] = {
    "two tensors": ("x.npy", {"a": X, "b": X}, {}, ValueError),
    "a name": ("x.npz", {"../a": X}, {}, ValueError),
    "a reserved name": ("x.safetensors", {"__metadata__": X}, {}, ValueError),
    "an element type": ("x.pb", X.astype(ml_dtypes.int4), {}, TypeError),
    "a number": ("x.npz", {"a": 3}, {}, TypeError),
    "metadata": ("x.npz", X, {"metadata": {"a": "b"}}, ValueError),
    "compression": ("x.safetensors", X, {"compression": 3}, ValueError),
}


@pytest.mark.parametrize(("file", "tree", "options", "builtin"), SAVES.values(), ids=SAVES)
def test_what_a_format_cannot_hold(tmp_path, file, tree, options, builtin):
    check(lambda: ferry.save(tmp_path / file, tree, **options), builtin, tmp_path / file)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A limit on the size of files; a write beyond it fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("file", FILES)
def test_a_write_that_fails(tmp_path, file):
    path = tmp_path / file
    ferry.save(path, X)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with file_size_limit(1 << 16):
        check(lambda: ferry.save(path, np.zeros(1 << 20)), OSError, tmp_path)
    # The old file is there, and nothing besides.
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("limit", [-1, 1 << 64, "1 GB", 1.5])
def test_invalid_limits(tmp_path, limit):
    ferry.save(tmp_path / "x.npz", X, compression=1)
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.inspect(tmp_path / "x.npz", max_decompressed_bytes=limit)
    assert repr(limit) in fact_and_hint(caught.value)[0]


def test_a_shape_beyond_64_bits(tmp_path):
    (tmp_path / "x.raw").write_bytes(bytes(16))
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.load_raw(tmp_path / "x.raw", dtype="uint8", shape=(1 << 70,))
    fact_and_hint(caught.value)
