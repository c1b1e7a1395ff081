"""Hints of the command line: options where the library names arguments."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry._tools import cli
from tensorferry._tools.cli import hints, main
from tensorferry._tools.cli.parser import Parser

ROOT = Path(__file__).parents[2]
# An argument of Python. Arguments of a call belong to another library: load(allow_pickle=True).
ARGUMENT = re.compile(
    r"(?<![\w(.])[a-z_]+=|\bleave (out )?(copy|device|dtype|format|names|shape|writable)\b"
)


def commands() -> dict[str, hints.Command]:
    (choices,) = (a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert all(isinstance(command, Parser) for command in choices.choices.values())
    return {name: hints.Command(one.prog, one.options) for name, one in choices.choices.items()}


def without_escapes(literal: str) -> str:
    """The text of a Rust string literal."""
    return re.sub(r"\\\n\s*", "", literal).replace('\\"', '"')


def advice_of_crates() -> dict[str, str]:
    """The advice of the library by key."""
    keys, texts = {}, {}
    # Advice that is the same in every front end stands beside the key.
    defined = re.compile(r'(\w+) = "([a-z_.0-9]+)"(?:\s*=>\s*"((?:[^"\\]|\\.|\\\n)*)")?;')
    for path in (
        *ROOT.glob("crates/*/src/hints.rs"),
        ROOT / "crates/python/src/errors/hints/keys.rs",
    ):
        crate = path.parts[path.parts.index("crates") + 1]
        for name, key, text in defined.findall(path.read_text()):
            keys[crate, name] = key
            if text:
                texts[key] = without_escapes(text)
    row = re.compile(r'\(\s*(?:hints|keys)::(\w+),\s*(?:"((?:[^"\\]|\\.|\\\n)*)"|ALLOW_COPY)')
    for path in ROOT.glob("crates/python/src/errors/hints/*.rs"):
        if path.stem == "keys":
            continue
        for name, text in row.findall(path.read_text()):
            advice = without_escapes(text) or "leave out copy=False to allow the copy"
            texts[keys[path.stem, name]] = advice
    assert texts.keys() == set(keys.values())
    return texts


def advice_of_python() -> list[str]:
    """The advice of errors that Python code raises when a command reads or writes a file."""
    found = []
    for path in (ROOT / "python/tensorferry/files").glob("*.py"):
        found += re.findall(r"hint: ([^\"]*)\"", path.read_text())
    assert len(found) > 10
    return found


class KeyedError(ferry.FerryError):
    """An error as the library raises it."""

    def __init__(self, key: str, own_hint: str) -> None:
        super().__init__(f"a fact\nhint: {own_hint}")
        self._hint_key, self._hint_value = key, "VALUE"


@pytest.mark.parametrize("command", commands())
def test_no_hint_names_an_argument_or_an_unknown_option(command):
    known = commands()[command]
    shown = {
        key: hints.advice(KeyedError(key, text), known) for key, text in advice_of_crates().items()
    }
    shown |= {text: hints.in_options(text, known) for text in advice_of_python()}
    for hint, text in shown.items():
        assert text, hint
        assert not ARGUMENT.search(text), (hint, text)
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", text)) <= {*known.options, "--help"}
        if "--help" in text:
            assert text == f"run tensorferry {command} --help"


def test_the_keys_are_those_of_the_crates():
    assert advice_of_crates().keys() >= set(hints.ADVICE)


PLAN = hints.Command("tensorferry plan", frozenset({"--to-dtype", "--no-copy", "--copy"}))


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ('pass dtype="default" to get x', "write --to-dtype default to get x"),
        ("leave out dtype, or pass copy=False", "leave out --to-dtype, or write --no-copy"),
        ("leave out copy=True", "leave out --copy"),
        ("leave dtype out", "leave out --to-dtype"),
        (
            "load it with numpy.load(allow_pickle=True)",
            "load it with numpy.load(allow_pickle=True)",
        ),
        ('pass device="cpu"', "run tensorferry plan --help"),
        ("pass mmap=False", "run tensorferry plan --help"),
        ("leave writable out", "run tensorferry plan --help"),
    ],
)
def test_arguments_become_options(own, shown):
    assert hints.in_options(own, PLAN) == shown


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("plan numpy torch --layout reversed --no-copy", "--no-copy"),
        ("plan numpy torch --dtype float32 --to-dtype float64 --no-copy", "--to-dtype"),
        ("plan numpy jax --dtype float64", "--to-dtype default"),
        ("plan numpy jax --writable", "--writable"),
        ("plan numpy numpy --device cuda", "--device"),
        ("plan numpy numpy --from-device cuda", "--from-device"),
        ("plan numpy caffe2", "write one of"),
        ("plan numpy torch --to-dtype foo", "write a name"),
    ],
)
def test_hints_name_options(arguments, option, capsys):
    assert main(arguments.split()) in (2, 3)
    _, hint = capsys.readouterr().err.splitlines()
    assert option in hint
    assert not re.search(r"\b[a-z]+=|ferry\.", hint), hint


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("plan numpy torch --copy", "leave out --copy"),
        ("plan numpy torch --dtype float32 --to-dtype float64", "leave out --to-dtype"),
        ("plan jax numpy --writable", "leave out --writable"),
        ("plan numpy jax", "write --no-copy to share the memory"),
    ],
)
def test_a_plan_advises_options(arguments, advice, capsys):
    assert main(arguments.split()) == 0
    text = capsys.readouterr().out
    assert f"to avoid the copy: {advice}" in text
    assert not ARGUMENT.search(text)


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
