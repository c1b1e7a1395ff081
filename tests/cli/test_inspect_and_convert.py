"""`tensorferry inspect` and `tensorferry convert`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import numpy as np
import pytest
from support import subprocesses

import tensorferry as ferry
from tensorferry._tools import cli


def test_what_is_in_a_file(tmp_path, capsys):
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"a": np.ones((2, 3), np.float16), "b": np.arange(4)}, metadata={"by": "me"})
    assert cli.main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "safetensors, 2 tensors" in text
    assert "float16" in text
    assert "(2, 3)" in text
    assert "by = me" in text
    assert cli.main(["inspect", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["shape"]) for one in told["tensors"]] == [("a", [2, 3]), ("b", [4])]


def loaded(path, like):
    if path.suffix == ".raw":
        return ferry.load_raw(path, dtype=like.dtype, shape=like.shape)
    found = ferry.load(path)
    return next(iter(found.values())) if isinstance(found, dict) else found


@pytest.mark.parametrize("target", ["y.npy", "y.npz", "y.safetensors", "y.pb", "y.raw"])
def test_any_format_becomes_any_other(tmp_path, target, capsys):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", np.asfortranarray(x).astype(">f4"))
    assert cli.main(["convert", str(tmp_path / "x.npy"), str(tmp_path / target)]) == 0
    assert f"wrote {tmp_path / target}" in capsys.readouterr().out
    np.testing.assert_array_equal(loaded(tmp_path / target, x), x)


SOURCES = ("x.npy", "x.npz", "x.safetensors", "x.safetensors.index.json", "x.pb", "x.raw")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", SOURCES)
def test_every_format_becomes_every_other(tmp_path, source, target):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source, target = tmp_path / "in" / source, tmp_path / "out" / target
    ferry.save(source, x)
    raw = ["--dtype", "float32", "--shape", "2,3,4"] if source.suffix == ".raw" else []
    assert cli.main(["convert", str(source), str(target), *raw]) == 0
    np.testing.assert_array_equal(loaded(target, x), x)


def test_formats_and_dialects_by_name(tmp_path, capsys):
    x = np.arange(6, dtype=np.uint8)
    (tmp_path / "pixels").write_bytes(x.tobytes())
    raw = ["--format", "raw", "--dtype", "uint8", "--shape", "2,3"]
    assert cli.main(["inspect", str(tmp_path / "pixels"), *raw, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"][0]["shape"] == [2, 3]
    wanted = ["--to-format", "tensorproto", "--dialect", "tensorflow", "--json"]
    line = ["convert", str(tmp_path / "pixels"), str(tmp_path / "y"), *raw, *wanted]
    assert cli.main(line) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == (tmp_path / "y").stat().st_size
    found = ferry.load(tmp_path / "y", format="tensorproto", dialect="tensorflow")
    np.testing.assert_array_equal(found, x.reshape(2, 3))
    zeros = tmp_path / "zeros.npy"
    np.save(zeros, np.zeros(100_000))
    assert cli.main(["convert", str(zeros), str(tmp_path / "z.npz"), "--compression", "9"]) == 0
    assert (tmp_path / "z.npz").stat().st_size < 10_000
    np.testing.assert_array_equal(ferry.load(tmp_path / "z.npz")["arr_0"], np.zeros(100_000))


def test_with_numpy_alone(tmp_path):
    """No framework is imported, nor needed."""
    np.savez(tmp_path / "x.npz", a=np.arange(3.0))
    source, target = tmp_path / "x.npz", tmp_path / "y.safetensors"
    subprocesses.run_program("cli/with_numpy_alone.py", str(source), str(target))
    assert ferry.load(tmp_path / "y.safetensors")["a"].tolist() == [0, 1, 2]


def test_the_bar_of_a_conversion(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1000.0))
    terminal, theirs = pty.openpty()
    command = ["convert", str(tmp_path / "x.npy"), str(tmp_path / "y.npz")]
    done = subprocess.run(
        [sys.executable, "-m", "tensorferry", *command], stderr=theirs, stdout=subprocess.PIPE
    )
    os.close(theirs)
    assert done.returncode == 0
    assert b"8000/8000 bytes" in os.read(terminal, 4096)
    os.close(terminal)


def test_some_tensors_in_another_type(tmp_path):
    source, target = tmp_path / "x.npz", tmp_path / "y.safetensors"
    np.savez(source, a=np.arange(3.0), b=np.arange(4.0))
    line = ["convert", str(source), str(target), "--names", "b", "--to-dtype", "bfloat16"]
    assert cli.main(line) == 0
    (tensor,) = ferry.inspect(target).tensors
    assert (tensor.name, tensor.dtype) == ("b", "bfloat16")


@pytest.mark.parametrize(
    ("integers", "dtype", "note"),
    [
        (["step"], "float16", "note: 1 integer tensor becomes float16 too: step\n"),
        (["a", "b", "c"], "bfloat16", "note: 3 integer tensors become bfloat16 too: a, b, c\n"),
        (
            ["a", "b", "c", "d", "e"],
            "float32",
            "note: 5 integer tensors become float32 too: a, b, c and 2 more\n",
        ),
        ([], "float16", ""),
        (["step"], "int32", ""),
    ],
)
def test_integers_that_become_floats_are_named(tmp_path, capsys, integers, dtype, note):
    source, target = tmp_path / "x.safetensors", tmp_path / "y.safetensors"
    ferry.save(source, {"w": np.ones(2), **{name: np.arange(2) for name in integers}})
    assert cli.main(["convert", str(source), str(target), "--to-dtype", dtype]) == 0
    assert capsys.readouterr().err == note
    assert {tensor.dtype for tensor in ferry.inspect(target).tensors} == {dtype}


def test_integers_alone_become_floats_without_a_note(tmp_path, capsys):
    source, target = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(source, a=np.arange(3), b=np.arange(4))
    assert cli.main(["convert", str(source), str(target), "--to-dtype", "float32"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("target", ["y.nzp", "nothing/y.npz", "y.npy"])
def test_a_conversion_that_fails_prints_no_notes(tmp_path, capsys, target):
    source = tmp_path / "x.safetensors"
    tree = {"layers": [np.ones(2), np.zeros(2)], "epoch": 3}
    ferry.save(source, tree, metadata={"by": "me"})
    assert cli.main(["convert", str(source), str(tmp_path / target)]) == 3
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "note: " not in said


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["inspect", "nothing.npy"], "nothing.npy"),
        (["convert", "x.npz", "x.npz"], "OUT"),
        (["convert", "x.npz", "y.npy"], "2"),
        (["convert", "x.npz", "y.npz", "--names", "q"], '"q"'),
        (["convert", "x.npz", "y.what"], "y.what"),
    ],
)
def test_errors(tmp_path, monkeypatch, capsys, arguments, fact):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", a=np.ones(2), b=np.ones(3))
    assert cli.main(arguments) == 3
    lines = capsys.readouterr().err.splitlines()
    assert fact in lines[0]
    assert lines[1].startswith("hint: ")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_a_file_cannot_speak_to_the_terminal(tmp_path, capsys):
    path = tmp_path / "x.safetensors"
    ferry.save(path, {"\x1b[2Jname": np.ones(2)}, metadata={"\x1b]0;key": "value\x07"})
    assert cli.main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "name" in text
    assert "value" in text
    assert all(letter.isprintable() for line in text.splitlines() for letter in line)
    assert cli.main(["convert", str(path), str(tmp_path / "y.npz"), "--names", "\x1b[2J"]) == 3
    said = capsys.readouterr().err
    assert all(letter.isprintable() for line in said.splitlines() for letter in line)


def test_the_tree_stays_or_is_said_to_be_left_out(tmp_path, capsys):
    source, target = tmp_path / "x.safetensors", tmp_path / "y.safetensors"
    ferry.save(source, {"layers": [np.ones(2), np.zeros(2)], "epoch": 3})
    assert cli.main(["convert", str(source), str(target)]) == 0
    assert ferry.load(target, nested=True)["epoch"] == 3
    assert isinstance(ferry.load(target, nested=True)["layers"], list)
    # The tree of all tensors would contradict a file with one of them.
    assert cli.main(["convert", str(source), str(target), "--names", "layers.1"]) == 0
    assert ferry.load(target, nested=True)["layers"]["1"].tolist() == [0, 0]
    assert "the tree around them is left out" in capsys.readouterr().err
    assert cli.main(["convert", str(source), str(tmp_path / "y.npz")]) == 0
    assert "other values of the tree are left out" in capsys.readouterr().err


def test_metadata_stays_or_is_said_to_be_left_out(tmp_path, capsys):
    source = tmp_path / "x.safetensors"
    ferry.save(source, {"a": np.ones(2)}, metadata={"by": "me"})
    assert cli.main(["convert", str(source), str(tmp_path / "y.safetensors")]) == 0
    assert ferry.inspect(tmp_path / "y.safetensors").metadata == {"by": "me"}
    assert capsys.readouterr().err == ""
    assert cli.main(["convert", str(source), str(tmp_path / "y.npz")]) == 0
    assert "metadata is left out" in capsys.readouterr().err


def test_a_large_tensor_goes_in_pieces(tmp_path, monkeypatch):
    x = np.random.default_rng(5).standard_normal((100, 30))
    np.save(tmp_path / "x.npy", x)
    monkeypatch.setattr("tensorferry._tools.cli.convert.BLOCK_ELEMENTS", 70)
    target = tmp_path / "y.safetensors"
    assert cli.main(["convert", str(tmp_path / "x.npy"), str(target), "--to-dtype", "float32"]) == 0
    np.testing.assert_array_equal(ferry.load(target)["tensor"], x.astype(np.float32))


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["inspect", "x.npy", "--shape", "4"], "leave out --shape"),
        (["inspect", "x.npy", "--dtype", "int8"], "leave out --dtype"),
        (
            ["convert", "x.npy", "y.npy", "--dtype", "float32"],
            "leave out --dtype, or write --to-dtype float32 to convert it",
        ),
    ],
)
def test_an_option_without_effect_is_refused(tmp_path, monkeypatch, capsys, arguments, advice):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones(2))
    assert cli.main(arguments) == 3
    assert capsys.readouterr().err.splitlines()[1] == f"hint: {advice}"
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("a.x, b.x", ["a.x", "b.x"]),
        ("a.*", ["a.x", "a.y"]),
        ("*.x,a.y,a.x", ["a.x", "b.x", "a.y"]),
        ("c[*]", ["c[*]"]),  # an exact name comes first
    ],
)
def test_names_are_patterns(tmp_path, monkeypatch, capsys, wanted, found):
    monkeypatch.chdir(tmp_path)
    tensors = dict.fromkeys(("a.x", "a.y", "b.x", "c[*]"), np.ones(2))
    ferry.save("x.safetensors", tensors)
    assert cli.main(["convert", "x.safetensors", "y.safetensors", "--names", wanted, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"] == found


@pytest.mark.parametrize(("count", "text"), [(1, "1 tensor, "), (2, "2 tensors, ")])
def test_plurals(tmp_path, monkeypatch, capsys, count, text):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", **{f"a{number}": np.ones(2) for number in range(count)})
    assert cli.main(["inspect", "x.npz"]) == 0
    assert cli.main(["convert", "x.npz", "y.npz"]) == 0
    assert capsys.readouterr().out.count(text) == 2
