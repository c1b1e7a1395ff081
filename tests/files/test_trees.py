"""Trees in files: what a save keeps besides tensors, and `load(nested=True)`."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import torch
from support.refusals import fact_and_hint

import tensorferry as ferry

RECORDING_FILES = ("x.safetensors", "x.safetensors.index.json")
X = np.arange(3, dtype=np.float32)


class Color(str, Enum):  # noqa: UP042 (the text of a StrEnum is its value)
    RED = "red"


class Number(IntEnum):
    TWO = 2


class Pair(NamedTuple):
    first: Any
    second: Any


def same(one: Any, other: Any) -> bool:
    """Whether two trees have equal types, structure and values."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


TREES = {
    "a checkpoint": {"epoch": 3, "loss": 0.25, "name": "run 7", "model": {"w": X, "b": X}},
    "lists and tuples": [X, (X, [X]), {"a": (X,)}],
    "keys with dots": {"model.layers.0.w": X, "model.layers.1.w": X},
    "text that is a mark": {"a": "$names", "w": X},
    "keys that are numbers": {0: X, "1": X, 2: {3: X}},
    "keys with a dollar": {"$tuple": X, "$": [X]},
    "text with a dollar": {"a": "$", "b": "$$x", "c": "x$", "w": X},
    "every value": {
        "values": [None, True, False, 0, -(2**80), 1e-300, "", "ä\n\x00\udc80"],
        "special": (math.nan, math.inf, -math.inf, -0.0, 1 - 2j, complex(math.nan, -0.0)),
        "w": X,
    },
    "empty containers": {"a": {}, "b": [], "c": (), "w": X},
    "without a tensor": {"epoch": 3},
    "nested dicts": {"a": {"b": {"c": X}}, "d": X},
    "one tensor": X,
    "a dict of one tensor": {"tensor": X},
    "a list of one tensor": [X],
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_safetensors_file_returns_the_tree(tmp_path, tree):
    path = tmp_path / "x.safetensors"
    ferry.save(path, tree)
    found = ferry.load(path, nested=True)
    assert same(found, tree), found


@pytest.mark.parametrize("file", RECORDING_FILES)
def test_frameworks_and_options(tmp_path, file):
    path = tmp_path / file
    ferry.save(path, {"step": 7, "layers": [torch.ones(2), jnp.zeros(3)]}, metadata={"by": "us"})
    found = ferry.load(path, "torch", nested=True, dtype="float16")
    assert found["step"] == 7
    assert [x.dtype for x in found["layers"]] == [torch.float16] * 2
    # Without nested, a file is the dict of its tensors, as any other file.
    assert sorted(ferry.load(path)) == ["layers.0", "layers.1"]
    metadata = ferry.inspect(path).metadata
    assert metadata.pop("total_size", None) in (None, "20")
    assert metadata == {"by": "us"}


def test_the_state_of_a_module_and_its_optimizer(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1})
    found = ferry.load(path, "torch", nested=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    assert found["model"]["1.num_batches_tracked"].dtype == torch.int64
    assert found["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
    assert torch.equal(
        found["optimizer"]["state"][0]["exp_avg"], optimizer.state[model[0].weight]["exp_avg"]
    )


def test_named_tuples_and_other_mappings_return_as_tuples_and_dicts(tmp_path):
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"pair": Pair(X, 1), "ordered": OrderedDict(a=X)})
    assert same(ferry.load(path, nested=True), {"pair": (X, 1), "ordered": {"a": X}})


def test_a_numpy_scalar_is_a_tensor(tmp_path):
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"a": np.float64(2.5), "b": 2.5})
    found = ferry.load(path, nested=True)
    assert isinstance(found["a"], np.ndarray)
    assert found["a"].shape == ()
    assert found["b"] == 2.5


def test_the_record_is_json_in_the_metadata(tmp_path):
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"epoch": 3, "layers": ({"w": X},)})
    with safetensors.safe_open(path, "numpy") as file:
        record = json.loads(file.metadata()["tensorferry.tree"])
    assert record == {"epoch": 3, "layers": {"$tuple": [{"w": "$"}]}}
    # A state dict, whose keys have dots, is its names.
    ferry.save(path, {"layers.0.w": X, "layers.0.b": X})
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"tensorferry.tree": '"$names"'}
    # Nested dicts follow from the names, and need no record.
    ferry.save(path, {"a": {"b": X}, "c": X})
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() is None
    assert same(ferry.load(path, nested=True), {"a": {"b": X}, "c": X})


@pytest.mark.parametrize("file", ["x.npz", "x.npy", "x.pb", "x.raw"])
@pytest.mark.parametrize("value", [3, 0.5, "text", None, True])
def test_other_formats_name_the_value_that_they_cannot_keep(tmp_path, file, value):
    with pytest.raises(ferry.NotATensorError) as caught:
        ferry.save(tmp_path / file, {"model": {"w": X}, "state": [value]})
    fact, hint = fact_and_hint(caught.value)
    assert f"at ['state'][0]: {value!r}" in fact
    assert str(tmp_path / file) in fact
    assert "safetensors" in hint
    # An array of text is not a tensor.
    assert ("numpy.asarray" in hint) == (value is not None and value != "text")
    # The hint works.
    ferry.save(tmp_path / "x.safetensors", {"model": {"w": X}, "state": [value]})
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize("file", ["x.safetensors", "x.safetensors.index.json", "x.npz", "x.npy"])
@pytest.mark.parametrize("value", [None, 3, 0.5, True, "model", "long " * 20, Number.TWO])
def test_a_value_alone_does_not_replace_a_file(tmp_path, file, value):
    path = tmp_path / file
    path.write_bytes(b"the last checkpoint")
    with pytest.raises(ferry.NotATensorError) as caught:
        ferry.save(path, value)
    fact, hint = fact_and_hint(caught.value)
    assert fact.startswith("x is ")
    assert ("numpy.asarray" in hint) == (value is not None and not isinstance(value, str))
    assert path.read_bytes() == b"the last checkpoint"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("file", ["x.safetensors", "x.npz"])
def test_objects_that_no_file_keeps_are_named(tmp_path, file):
    for value in ({1, 2}, object(), torch.eye(2).to_sparse()):
        with pytest.raises(ferry.NotATensorError) as caught:
            ferry.save(tmp_path / file, {"a": [X, value]})
        assert "at ['a'][1]: " in fact_and_hint(caught.value)[0]


def test_enums_are_their_values(tmp_path):
    path = tmp_path / "x.safetensors"
    ferry.save(path, {Color.RED: X, Number.TWO: [X], "n": Color.RED, "m": Number.TWO})
    assert same(ferry.load(path, nested=True), {"red": X, 2: [X], "n": "red", "m": 2})


def test_a_tree_at_the_limit_returns(tmp_path):
    path = tmp_path / "x.safetensors"
    tree: Any = X
    for _ in range(101):
        tree = [tree]
    ferry.save(path, tree)
    assert same(ferry.load(path, nested=True), tree)
    with pytest.raises(ferry.InvalidArgumentError, match="100 levels deep"):
        ferry.save(path, [tree])


def test_values_that_no_record_keeps_are_errors(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(ferry.InvalidArgumentError, match="JSON cannot hold"):
        ferry.save(path, {"w": X, "n": 10**5000})
    with pytest.raises(ferry.InvalidArgumentError, match="cannot be part of a tensor's name"):
        ferry.save(path, {"w\ud800": X})
    assert not path.exists()


def test_a_container_that_no_file_keeps(tmp_path):
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.save(tmp_path / "x.safetensors", {"w": SimpleNamespace(x=X)})
    fact, hint = fact_and_hint(caught.value)
    for text in (fact, hint):
        assert "dicts, lists and tuples" in text
    assert "['w']: SimpleNamespace" in fact


def test_a_name_with_many_dots_is_not_nested(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"." * 100_000: X}, path)
    with pytest.raises(ferry.FileFormatError, match=r"100000 dots.*\nhint: leave out nested=True"):
        ferry.load(path, nested=True)


def test_a_tree_that_contains_itself(tmp_path):
    tree: dict[str, Any] = {"w": X}
    tree["self"] = tree
    with pytest.raises(ferry.InvalidArgumentError, match=r"100 levels deep\nhint: "):
        ferry.save(tmp_path / "x.safetensors", tree)


def test_files_without_a_record_are_nested_by_dots(tmp_path):
    ferry.save(tmp_path / "x.npz", {"a": {"b": X}, "layers": [X, (X,)]})
    expected = {"a": {"b": X}, "layers": {"0": X, "1": {"0": X}}}
    assert same(ferry.load(tmp_path / "x.npz", nested=True), expected)
    safetensors.numpy.save_file({"m.w": X, "m.b": X, "k": X}, tmp_path / "x.safetensors")
    found = ferry.load(tmp_path / "x.safetensors", nested=True)
    assert sorted(found) == ["k", "m"]
    assert same(found["m"]["w"], X)
    ferry.save(tmp_path / "x.npy", X)
    assert same(ferry.load(tmp_path / "x.npy", nested=True), X)


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a"), ("a.b.c", "a.b")])
def test_names_that_are_paths_to_others_cannot_be_nested(tmp_path, names):
    np.savez(tmp_path / "x.npz", **dict.fromkeys(names, X))
    with pytest.raises(ferry.FileFormatError) as caught:
        ferry.load(tmp_path / "x.npz", nested=True)
    fact, hint = fact_and_hint(caught.value)
    assert str(tmp_path / "x.npz") in fact
    assert "leave out nested=True" in hint
    assert sorted(ferry.load(tmp_path / "x.npz")) == sorted(names)


@pytest.mark.parametrize(
    "record",
    [
        *("", "{", "nan", '{"$tuple": 3}', '{"$set": []}', '{"$dict": [[]]}', '{"$float": "x"}'),
        *(
            '{"$complex": [1]}',
            '{"$tuple": [], "a": 1}',
            '{"w": "$", "$tuple": [1]}',
            '{"b": "$"}',
            "{}",
            "[" * 100_000,
        ),
        '{"w":' * 102 + '"$"' + "}" * 102,
    ],
)
def test_an_invalid_record_is_an_error(tmp_path, record):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"w": X}, path, metadata={"tensorferry.tree": record})
    with pytest.raises(ferry.FileFormatError) as caught:
        ferry.load(path, nested=True)
    fact, hint = fact_and_hint(caught.value)
    assert str(path) in fact
    assert "leave out nested=True" in hint
    assert same(ferry.load(path), {"w": X})


def test_the_key_of_the_record_is_reserved(tmp_path):
    with pytest.raises(ferry.InvalidArgumentError, match=r"tensorferry\.tree.*\nhint: "):
        ferry.save(tmp_path / "x.safetensors", X, metadata={"tensorferry.tree": "{}"})


# Patterns.

MODEL = {f"model.layers.{n}.{name}": X + n for n in range(3) for name in ("w", "b")} | {"a[0]*": X}


@pytest.fixture
def model(tmp_path):
    ferry.save(tmp_path / "m.safetensors", MODEL)
    return tmp_path / "m.safetensors"


def test_patterns_select_tensors(model):
    assert list(ferry.load(model, names="model.layers.0.*")) == [
        *("model.layers.0.w", "model.layers.0.b")
    ]
    assert list(ferry.load(model, names="*.1.?")) == ["model.layers.1.w", "model.layers.1.b"]
    assert list(ferry.load(model, names="*[02].w")) == ["model.layers.0.w", "model.layers.2.w"]
    assert len(ferry.load(model, names="*")) == len(MODEL)
    several = ferry.load(model, "torch", names=["*.2.w", "model.layers.0.b", "*.2.*"])
    assert list(several) == ["model.layers.2.w", "model.layers.0.b", "model.layers.2.b"]
    assert all(isinstance(x, torch.Tensor) for x in several.values())


def test_a_pattern_gives_a_dict_and_a_name_a_tensor(model):
    assert list(ferry.load(model, names="*.1.w")) == ["model.layers.1.w"]
    assert same(ferry.load(model, names="model.layers.1.w"), X + 1)
    # A name that exists is not read as a pattern.
    assert same(ferry.load(model, names="a[0]*"), X)
    assert list(ferry.load(model, names=["a[0]*"])) == ["a[0]*"]


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        ("model.layer.0.*", "model.layers.0."),
        ("model.layers.0.W", "'model.layers.0.w'"),
        (["model.layers.0.w", "modle.layers.1.b"], "'model.layers.1.b'"),
        ("MODEL.*", "ferry.inspect"),
        ("zzz", "ferry.inspect"),
    ],
)
def test_a_name_without_a_match_suggests_others(model, names, hint):
    with pytest.raises(ferry.InvalidArgumentError) as caught:
        ferry.load(model, names=names)
    fact, advice = fact_and_hint(caught.value)
    assert str(model) in fact
    assert repr(names if isinstance(names, str) else names[-1]) in fact
    assert hint in advice


def test_a_short_list_of_names_is_written_out(tmp_path):
    ferry.save(tmp_path / "x.npz", {"a": X, "b": X})
    with pytest.raises(ferry.InvalidArgumentError, match=r"hint: the file has 'a', 'b'$"):
        ferry.load(tmp_path / "x.npz", names="weight")


def test_a_pattern_that_matches_an_unsupported_entry_says_why(tmp_path):
    np.savez(tmp_path / "x.npz", good=X, text=np.array(["a"]))
    with pytest.raises(ferry.UnsupportedDTypeError, match="hint: "):
        ferry.load(tmp_path / "x.npz", names="t*")
    assert list(ferry.load(tmp_path / "x.npz", names="g*")) == ["good"]


def test_names_and_nested_exclude_each_other(model):
    with pytest.raises(ferry.InvalidArgumentError, match=r"names=.*\nhint: pass only one"):
        ferry.load(model, names="*.w", nested=True)


def test_errors_name_the_file_and_the_tensor(tmp_path):
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"model": {"steps": np.arange(3)}, "epoch": 1})
    for options in ({}, {"names": "model.steps"}, {"nested": True}):
        with pytest.raises(ferry.UnsupportedDTypeError) as caught:
            ferry.load(path, "jax", **options)
        assert str(caught.value).startswith(f"{path}: 'model.steps': JAX has no int64")
    ferry.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(ferry.UnsupportedDTypeError) as caught:
        ferry.load(tmp_path / "x.npy", "jax")
    assert str(caught.value).startswith(f"{tmp_path / 'x.npy'}: JAX has no int64")
