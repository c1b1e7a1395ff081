"""Files that tensorferry has written, read by the programs that people use, bit for bit."""

from __future__ import annotations

import json
import re

import ml_dtypes
import numpy as np
import onnx
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import tensorflow as tf
import torch
from onnx import numpy_helper

import tensorferry as ferry

NUMPY_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
SHAPES = [(), (0, 3), (7,), (3, 4, 5)]


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    bits = np.random.default_rng(9).integers(0, 256, (*shape, kind.itemsize), dtype=np.uint8)
    if dtype == "bool":
        bits &= 1
    return bits.view(kind).reshape(shape)


def same(found: np.ndarray, x: np.ndarray) -> None:
    assert found.shape == x.shape
    assert found.tobytes() == x.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numpy(tmp_path, dtype, shape):
    x = numbers(dtype, shape)
    ferry.save(tmp_path / "x.npy", x)
    found = np.load(tmp_path / "x.npy", allow_pickle=False)
    assert found.dtype == x.dtype
    same(found, x)
    for compression in (None, 6):
        ferry.save(tmp_path / "x.npz", {"a": x, "b.c": x}, compression=compression)
        with np.load(tmp_path / "x.npz", allow_pickle=False) as archive:
            assert archive.files == ["a", "b.c"]
            same(archive["a"], x)
            same(archive["b.c"], x)


@pytest.mark.parametrize("dtype", NARROW)
def test_numpy_opens_what_it_has_no_name_for(tmp_path, dtype):
    """As bytes of the right number, which a view gives their type."""
    x = numbers(dtype, (3, 4))
    ferry.save(tmp_path / "x.npy", x)
    found = np.load(tmp_path / "x.npy", allow_pickle=False)
    same(found.view(x.dtype), x)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "dtype", [*(name for name in NUMPY_TYPES if name != "complex128"), *NARROW]
)
def test_safetensors(tmp_path, dtype, shape):
    x, path = numbers(dtype, shape), tmp_path / "x.safetensors"
    ferry.save(path, {"a": x, "b": [x]}, metadata={"by": "us"})
    with safetensors.safe_open(path, "pt") as file:
        assert sorted(file.keys()) == ["a", "b.0"]
        assert file.metadata() == {"by": "us", "tensorferry.tree": '{"a":"$","b":["$"]}'}
        found = file.get_tensor("b.0")
    assert str(found.dtype) == f"torch.{dtype}"
    assert tuple(found.shape) == shape
    # As bytes, which every version of torch hands over; a tensor without axes has no view of those.
    assert found.reshape(-1).view(torch.uint8).numpy().tobytes() == x.tobytes()
    if dtype in NUMPY_TYPES and dtype != "complex64":
        same(safetensors.numpy.load_file(path)["a"], x)


def test_safetensors_of_types_that_they_lack(tmp_path):
    """As pairs of floats and as bytes, which a view gives their type."""
    x = numbers("complex128", (3, 4))
    ferry.save(tmp_path / "x.safetensors", {"x": x})
    found = safetensors.torch.load_file(tmp_path / "x.safetensors")["x"]
    assert found.dtype == torch.float64
    assert torch.view_as_complex(found).numpy().tobytes() == x.tobytes()
    same(ferry.load(tmp_path / "x.safetensors")["x"], x)


def test_safetensors_with_an_index(tmp_path):
    """Files of a limited size, and an index in the form that model hubs use."""
    tree = {f"layer.{i}": numbers("float32", (i + 1, 25)) for i in range(10)}
    path = tmp_path / "model.safetensors.index.json"
    ferry.save(path, tree, shard_bytes=1000, metadata={"by": "us"})
    index = json.loads(path.read_text())
    total = sum(x.nbytes for x in tree.values())
    expected = {"by": "us", "tensorferry.tree": '"$names"', "total_size": total}
    assert index["metadata"] == expected
    assert list(index["weight_map"]) == list(tree)
    files = sorted(set(index["weight_map"].values()))
    count = len(files)
    for number, file in enumerate(files, 1):
        assert re.fullmatch(rf"model-[0-9a-f]{{8}}-{number:05}-of-{count:05}\.safetensors", file)
        with safetensors.safe_open(tmp_path / file, "np") as shard:
            assert shard.metadata() == {"by": "us"}
        found = safetensors.numpy.load_file(tmp_path / file)
        assert len(found) == 1 or sum(x.nbytes for x in found.values()) <= 1000
        for name, x in found.items():
            assert index["weight_map"][name] == file
            same(x, tree[name])
    again = ferry.load(path)
    assert list(again) == list(tree)
    for name, x in tree.items():
        same(again[name], x)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [*NUMPY_TYPES, *NARROW])
def test_onnx(tmp_path, dtype, shape):
    x = numbers(dtype, shape)
    ferry.save(tmp_path / "x.pb", x)
    proto = onnx.TensorProto.FromString((tmp_path / "x.pb").read_bytes())
    found = numpy_helper.to_array(proto)
    assert found.dtype == x.dtype
    same(found, x)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [*NUMPY_TYPES, *NARROW])
def test_tensorflow(tmp_path, dtype, shape):
    x = numbers(dtype, shape)
    ferry.save(tmp_path / "x.pb", x, dialect="tensorflow")
    content = (tmp_path / "x.pb").read_bytes()
    found = tf.io.parse_tensor(content, tf.as_dtype(x.dtype))
    assert found.numpy().dtype == x.dtype
    same(found.numpy(), x)


def test_torch_reads_what_it_maps(tmp_path):
    x = torch.randn(3, 5)
    ferry.save(tmp_path / "x.raw", x)
    found = torch.from_file(str(tmp_path / "x.raw"), size=15, dtype=torch.float32)
    assert torch.equal(found.reshape(3, 5), x)
