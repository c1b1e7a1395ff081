"""Tensors through files: every format, every framework, and the errors.

The wording of the messages is in tests/golden/files.txt.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import zipfile
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch
from support.dtypes import NAMED
from support.introspect import INSPECTORS, TYPES, has_dtype
from support.subprocesses import program_path

import tensorferry as ferry

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")
FILES = ("x.npy", "x.npz", "x.safetensors", "x.pb", "x.raw")
DTYPES = (
    *("bool", "uint8", "int8", "int16", "uint16", "int32", "float16", "float32", "complex64"),
    *("bfloat16", "float8_e4m3fn"),
)


def numbers(dtype: str, shape: tuple[int, ...] = (5, 7)) -> np.ndarray:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    bits = np.random.default_rng(3).integers(0, 256, (*shape, kind.itemsize), dtype=np.uint8)
    if dtype == "bool":
        bits &= 1
    return bits.view(kind).reshape(shape)


def loaded(path: Any, framework: str, dtype: str, shape: tuple[int, ...], **options: Any) -> Any:
    """The tensor of a file. Raw bytes need their type and shape."""
    if str(path).endswith(".raw"):
        return ferry.load_raw(path, framework, dtype=dtype, shape=shape, **options)
    return only(ferry.load(path, framework, **options))


def only(loaded: object) -> object:
    if isinstance(loaded, dict):
        (loaded,) = loaded.values()
    return loaded


def bits(x: object) -> bytes:
    array = ferry.to(x, "numpy")
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_comes_back_bit_for_bit(tmp_path, file, dtype):
    x, path = numbers(dtype), tmp_path / file
    ferry.save(path, x)
    for framework in FRAMEWORKS:
        if not has_dtype(framework, NAMED[dtype]):
            with pytest.raises(ferry.UnsupportedDTypeError, match="hint: "):
                loaded(path, framework, dtype, x.shape)
            continue
        for mmap in (True, False):
            found = loaded(path, framework, dtype, x.shape, mmap=mmap)
            assert isinstance(found, TYPES[framework])
            assert INSPECTORS[framework].dtype(found) == dtype
            assert INSPECTORS[framework].shape(found) == x.shape
            assert bits(found) == x.tobytes()


@pytest.mark.parametrize("file", ["x.npy", "x.npz", "x.safetensors", "x.raw"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_file_is_mapped_and_not_read(tmp_path, file, framework):
    x, path = numbers("float32", (64, 64)), tmp_path / file
    ferry.save(path, x)
    with ferry.trace() as trips:
        found = loaded(path, framework, "float32", x.shape)
    assert trips[0].plan.source == "file"
    assert (trips[0].shares, trips[0].bytes_moved) == (True, 0), trips[0].plan
    assert bits(found) == x.tobytes()


def test_writing_to_a_map_changes_no_file(tmp_path):
    path = tmp_path / "x.npy"
    x = numbers("float32")
    ferry.save(path, x)
    t, n = ferry.load(path, "torch"), ferry.load(path, "numpy")
    t[0, 0] = 7
    n[1, 1] = 8
    assert np.array_equal(np.load(path), x, equal_nan=True)
    assert n.flags.writeable


def test_a_map_outlives_its_file(tmp_path):
    path = tmp_path / "x.npy"
    x = numbers("int32")
    ferry.save(path, x)
    found = ferry.load(path, "torch")
    path.unlink()
    assert bits(found) == x.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4, 5)])
@pytest.mark.parametrize("file", FILES)
def test_every_shape(tmp_path, file, shape):
    x, path = numbers("float32", shape), tmp_path / file
    ferry.save(path, x)
    found = loaded(path, "torch", "float32", shape)
    assert tuple(found.shape) == shape
    assert bits(found) == x.tobytes()


def test_layouts_and_orders_of_others(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for number, written in enumerate((x, np.asfortranarray(x), x.astype(">f4"), x.T[::2].T)):
        path = tmp_path / f"{number}.npy"
        np.save(path, written)
        for framework in FRAMEWORKS:
            np.testing.assert_array_equal(ferry.to(ferry.load(path, framework), "numpy"), written)
    # NumPy reads files of tensorferry, from any layout.
    ferry.save(tmp_path / "ours.npy", torch.arange(24.0).reshape(4, 6).T)
    np.testing.assert_array_equal(np.load(tmp_path / "ours.npy"), x.T)


@pytest.mark.parametrize("file", ["tree.npz", "tree.safetensors"])
def test_trees_of_all_frameworks(tmp_path, file):
    path = tmp_path / file
    tree = {
        "w": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "layers": [{"b": jnp.arange(4.0)}, (np.float32([1, 2]), tf.constant([3, 4]))],
    }
    ferry.save(path, tree)
    assert [tensor.name for tensor in ferry.inspect(path).tensors] == [
        *("w", "layers.0.b", "layers.1.0", "layers.1.1")
    ]
    found = ferry.load(path, "torch")
    assert found["w"].dtype == torch.bfloat16
    assert torch.equal(found["w"], tree["w"])
    assert found["layers.1.1"].tolist() == [3, 4]
    # Only the requested tensors; one name returns one tensor.
    assert list(ferry.load(path, "numpy", names=["w"])) == ["w"]
    assert ferry.load(path, "numpy", names="layers.0.b").tolist() == [0, 1, 2, 3]


def test_a_cast_on_the_way(tmp_path):
    ferry.save(tmp_path / "x.npy", np.arange(5, dtype=np.int64))
    assert ferry.load(tmp_path / "x.npy", "jax", dtype="float16").dtype == jnp.float16


def test_deflated_members(tmp_path):
    x = np.zeros((1000, 1000), np.float32)
    ferry.save(tmp_path / "x.npz", {"x": x}, compression=6)
    assert os.path.getsize(tmp_path / "x.npz") < 100_000
    np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["x"], x)
    np.savez_compressed(tmp_path / "y.npz", y=x)
    np.testing.assert_array_equal(ferry.load(tmp_path / "y.npz")["y"], x)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        ferry.load(tmp_path / "nothing.npy")
    assert isinstance(caught.value, ferry.FerryError)
    assert caught.value.errno == 2
    assert caught.value.hint
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (again.errno, str(again), again.hint) == (2, str(caught.value), caught.value.hint)
    with pytest.raises(IsADirectoryError):
        ferry.load(tmp_path, format="npy")
    with pytest.raises(FileNotFoundError):
        ferry.save(tmp_path / "no" / "x.npy", np.ones(3))


def test_pickles_are_refused_and_not_run(tmp_path):
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/exploded",)

    objects = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        ferry.load(tmp_path / "x.npy")
    assert caught.value.hint
    np.savez(tmp_path / "x.npz", bad=objects, good=np.ones(2))
    with pytest.raises(ferry.UnsupportedDTypeError, match="'bad'"):
        ferry.load(tmp_path / "x.npz")
    assert ferry.load(tmp_path / "x.npz", names="good").tolist() == [1, 1]
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ferry.FerryError):
        ferry.load(tmp_path / "x.pkl")
    assert not (tmp_path / "exploded").exists()


def test_a_file_that_contradicts_its_header(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.ones(100))
    (tmp_path / "short.npy").write_bytes(buffer.getvalue()[:-8])
    with pytest.raises(ferry.FileFormatError, match=r"800 .*792") as caught:
        ferry.load(tmp_path / "short.npy")
    assert isinstance(caught.value, ValueError)
    assert caught.value.hint
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("x.npy", "no array")
    with pytest.raises(ferry.FerryError):
        ferry.load(tmp_path / "text.npz")


def test_invalid_names_and_trees(tmp_path):
    x = np.ones(2)
    for tree in ({"a": {"b": x}, "a.b": x}, {("a", 1): x}, {"a": "text"}):
        with pytest.raises(ferry.FerryError, match="hint: "):
            ferry.save(tmp_path / "x.npz", tree)
    with pytest.raises(ferry.InvalidArgumentError, match=r"2.*\nhint: "):
        ferry.save(tmp_path / "x.npy", {"a": x, "b": x})
    with pytest.raises(ferry.InvalidArgumentError, match="hint: "):
        ferry.save(tmp_path / "x", x)
    ferry.save(tmp_path / "x.npz", {"a": x})
    with pytest.raises(ferry.FerryError, match=r"nothing.*\nhint: "):
        ferry.load(tmp_path / "x.npz", names=["nothing"])
    assert sorted(os.listdir(tmp_path)) == ["x.npz"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.npz"
    ferry.save(path, {"a": np.ones(3)})

    class FailingArray:
        """Says that it is a tensor, and then has no memory."""

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked > 1:
                raise RuntimeError("gone")
            return np.ones(4)

    with pytest.raises(Exception, match="gone"):
        ferry.save(path, {"a": np.zeros(3), "b": FailingArray()})
    assert ferry.load(path)["a"].tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["x.npz"]


def test_killed_while_saving(tmp_path):
    """At any moment there is the old file or the new one.

    Besides it there is at most the complete new file, if the process was killed before the rename.
    """
    path = tmp_path / "x.npy"
    ferry.save(path, np.full(4 << 20, 1, np.float32))
    for saves in (1, 2, 3, 5, 8):
        with subprocess.Popen(
            [sys.executable, program_path("files/save_for_good.py"), str(path)],
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            for _ in range(saves):
                assert child.stdout.readline() == b"saving\n"
            child.kill()
        found = np.load(path)
        assert found.shape == (4 << 20,)
        assert np.unique(found).tolist() in ([[1], [2]] if saves == 1 else [[2]])
        for name in os.listdir(tmp_path):
            if name != path.name:
                assert name.startswith(".tensorferry-")
                assert np.array_equal(np.load(tmp_path / name), np.full(4 << 20, 2, np.float32))
                os.remove(tmp_path / name)


@pytest.mark.parametrize(
    "dtype", ["float16", np.float16, np.dtype("float16"), torch.float16, tf.float16, jnp.float16]
)
def test_raw_bytes_by_any_name_of_their_type(tmp_path, dtype):
    x = numbers("float16", (3, 4))
    (tmp_path / "x.raw").write_bytes(x.tobytes())
    found = ferry.load_raw(tmp_path / "x.raw", "torch", dtype=dtype, shape=(3, 4))
    assert found.dtype == torch.float16
    assert bits(found) == x.tobytes()
    assert bits(ferry.load_raw(tmp_path / "x.raw", dtype=dtype)) == x.tobytes()


def test_load_names_the_function_for_raw_bytes(tmp_path):
    for name, options in (("x.raw", {}), ("x.bin", {}), ("x", {"format": "raw"})):
        (tmp_path / name).write_bytes(bytes(16))
        with pytest.raises(ferry.InvalidArgumentError) as caught:
            ferry.load(tmp_path / name, **options)
        assert "load_raw" in caught.value.hint
        assert ferry.load_raw(tmp_path / name, dtype="uint8").tolist() == [0] * 16


def test_raw_bytes_of_another_length(tmp_path):
    (tmp_path / "x.raw").write_bytes(bytes(16))
    for shape in (3, (2, 3), (1 << 40, 8)):
        with pytest.raises(ferry.FileFormatError) as caught:
            ferry.load_raw(tmp_path / "x.raw", dtype="float32", shape=shape)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"shape": "ab"}, "ab"),
        ({"shape": (2, -1)}, "-1"),
        ({"shape": (1.5,)}, "1.5"),
        ({"dtype": "float31"}, "float31"),
        ({"dtype": object()}, "object"),
        ({"dtype": "default"}, "default"),
    ],
)
def test_invalid_descriptions_of_raw_bytes(tmp_path, given, fact):
    (tmp_path / "x.raw").write_bytes(bytes(16))
    with pytest.raises(ferry.InvalidArgumentError, match=fact) as caught:
        ferry.load_raw(tmp_path / "x.raw", **{"dtype": "uint8", **given})
    assert caught.value.hint


def test_one_number_is_a_shape(tmp_path):
    (tmp_path / "x.raw").write_bytes(bytes(16))
    assert ferry.load_raw(tmp_path / "x.raw", dtype="uint8", shape=np.int64(16)).shape == (16,)


@pytest.mark.parametrize("names", [3, [3], [b"a"], [None]])
def test_names_that_are_not_text(tmp_path, names):
    ferry.save(tmp_path / "x.npz", {"a": np.ones(2)})
    with pytest.raises(ferry.InvalidArgumentError, match="hint: "):
        ferry.load(tmp_path / "x.npz", names=names)


@pytest.mark.parametrize(
    ("file", "given", "fact"),
    [
        ("x.npz", {"compression": 0}, "0"),
        ("x.npz", {"compression": 10}, "10"),
        ("x.npz", {"compression": -1}, "-1"),
        ("x.npy", {"compression": 5}, "npy"),
        ("x.safetensors", {"compression": 5}, "safetensors"),
        ("x.npy", {"metadata": {"a": "b"}}, "npy"),
        ("x.safetensors", {"metadata": {"a": 1}}, "metadata"),
        ("x.safetensors", {"metadata": {1: "a"}}, "metadata"),
        ("x.pb", {"dialect": "caffe"}, "caffe"),
        ("x.npy", {"format": "npq"}, "npq"),
    ],
)
def test_invalid_save_options(tmp_path, file, given, fact):
    with pytest.raises(ferry.InvalidArgumentError, match=fact) as caught:
        ferry.save(tmp_path / file, np.ones(3), **given)
    assert caught.value.hint
    assert os.listdir(tmp_path) == []


def test_hints_that_can_be_followed(tmp_path):
    # NumPy does not store the names of narrow types; bfloat16 is the only one of its size.
    x = numbers("float8_e4m3fn")
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ferry.UnsupportedDTypeError, match="dtype="):
        ferry.load(tmp_path / "x.npy")
    found = ferry.load(tmp_path / "x.npy", dtype="float8_e4m3fn")
    assert found.dtype == ml_dtypes.float8_e4m3fn
    assert bits(found) == x.tobytes()
    np.save(tmp_path / "y.npy", np.ones(3, ml_dtypes.bfloat16))
    assert ferry.load(tmp_path / "y.npy", dtype="float32").tolist() == [1, 1, 1]
    assert ferry.load(tmp_path / "y.npy", "torch", dtype="default").dtype == torch.bfloat16
    # The limit on decompression can be raised.
    zeros = np.zeros(1 << 20, np.uint8)
    np.savez_compressed(tmp_path / "z.npz", z=zeros)
    with pytest.raises(ferry.FileFormatError, match=r"1000\nhint: .*max_decompressed_bytes="):
        ferry.load(tmp_path / "z.npz", max_decompressed_bytes=1000)
    assert ferry.load(tmp_path / "z.npz", max_decompressed_bytes=2 << 20)["z"].sum() == 0
    # The dialect of a TensorProto can be named.
    ferry.save(tmp_path / "p.pb", np.arange(3), dialect="tensorflow")
    assert ferry.load(tmp_path / "p.pb", dialect="tensorflow").tolist() == [0, 1, 2]
    with pytest.raises(ferry.InvalidArgumentError, match="caffe"):
        ferry.load(tmp_path / "p.pb", dialect="caffe")


def test_load_options(tmp_path):
    x = numbers("float32", (64, 64))
    ferry.save(tmp_path / "x.npy", x)
    with ferry.trace() as trips:
        copied = ferry.load(tmp_path / "x.npy", "torch", copy=True)
        with pytest.raises(ferry.CopyRequiredError):
            ferry.load(tmp_path / "x.npy", "torch", copy=False, dtype="float16")
        with pytest.raises(ferry.OutOfMemoryError):
            ferry.load(tmp_path / "x.npy", "torch", dtype="float64", budget=1000)
        with pytest.raises(TypeError, match="sideways"):
            ferry.load(tmp_path / "x.npy", "torch", sideways=True)
        assert ferry.load(tmp_path / "x.npy", "numpy", writable=True).flags.writeable
        assert not ferry.load(tmp_path / "x.npy", "numpy", writable=False).flags.writeable
    assert trips[0].bytes_moved == x.nbytes
    assert bits(copied) == x.tobytes()


@pytest.mark.parametrize("framework", ["paddle", "mlx"])
@pytest.mark.parametrize("file", FILES)
def test_the_other_frameworks(tmp_path, framework, file):
    x, path = numbers("float16"), tmp_path / file
    ferry.save(path, ferry.to(x, framework))
    found = loaded(path, framework, "float16", x.shape)
    assert isinstance(found, TYPES[framework])
    assert bits(found) == x.tobytes()


def test_a_name_longer_than_a_column(tmp_path):
    """Rust's formatting panics for columns of more than 65,535 characters."""
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"x" * 70_000: np.zeros(3), "y": np.zeros(2)})
    listing = str(ferry.inspect(path))
    assert "x" * 70_000 + "  float64" in listing
    assert listing.count("\n") == 2


def test_only_requested_tensors_are_read(tmp_path):
    """A damaged member does not affect the others."""
    path = tmp_path / "x.npz"
    good, bad = numbers("float32"), numbers("float64")
    np.savez(path, good=good, bad=bad)
    content = bytearray(path.read_bytes())
    offset = content.find(bad.tobytes())
    content[offset] ^= 1
    path.write_bytes(content)
    assert bits(ferry.load(path, names="good", mmap=False)) == good.tobytes()
    with pytest.raises(ferry.FileFormatError):
        ferry.load(path, names="bad", mmap=False)


def test_paths_of_every_kind(tmp_path):
    path = tmp_path / "x.npy"
    for kind in (path, str(path), os.fsencode(path)):
        ferry.save(kind, np.arange(3))
        assert ferry.load(kind).tolist() == [0, 1, 2]
        path.unlink()
    # A name that is not UTF-8.
    odd = os.fsencode(tmp_path) + b"/\xff.npy"
    ferry.save(odd, np.arange(3))
    assert ferry.load(odd).tolist() == [0, 1, 2]
