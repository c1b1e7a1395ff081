"""Hints of the command line: options where the library names arguments."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry._tools.cli import hints, main

ROOT = Path(__file__).parents[2]


def test_the_keys_are_those_of_the_crates():
    keys = set()
    for pattern in ("crates/*/src/hints.rs", "crates/python/src/errors/hints/keys.rs"):
        for path in ROOT.glob(pattern):
            keys.update(re.findall(r'= "([a-z_.0-9]+)";', path.read_text()))
    assert keys >= set(hints.ADVICE)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("plan numpy torch --layout reversed --no-copy", "--no-copy"),
        ("plan numpy torch --dtype float64 --to-dtype float32 --no-copy", "--to-dtype"),
        ("plan numpy jax --writable", "--writable"),
        ("plan numpy numpy --device cuda", "--device"),
        ("plan numpy caffe2", "write one of"),
        ("plan numpy torch --to-dtype foo", "write a name"),
    ],
)
def test_hints_name_options(arguments, option, capsys):
    assert main(arguments.split()) in (2, 3)
    _, hint = capsys.readouterr().err.splitlines()
    assert option in hint
    assert not re.search(r"\w=|ferry\.", hint), hint


def test_an_error_of_the_library_names_options(tmp_path, capsys):
    path = tmp_path / "x.bin"
    np.arange(4.0).tofile(path)
    with pytest.raises(ferry.FerryError, match=r"hint: .*dtype="):
        ferry.inspect(path)
    assert main(["inspect", str(path)]) == 3
    _, hint = capsys.readouterr().err.splitlines()
    assert "--dtype" in hint
    assert "dtype=" not in hint


def test_a_value_is_part_of_the_advice(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    assert main(["inspect", str(tmp_path / "x.npy")]) == 3
    assert "--format npz" in capsys.readouterr().err
