"""The wording of the command line: help texts, and errors of each command."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
from support import golden_text

import tensorferry as ferry
from tensorferry._tools import cli

ERRORS = (
    "plan numpy torch --shape 3,x,y",
    "doctor --frameworks ,",
    "doctor --timeout 0",
    "bench --sizes 4Q",
    "bench --sizes ,",
    "bench --dtypes float33",
    "bench --dtypes ,",
    "bench --layouts round",
    "bench --seconds long",
    "bench --from numpy --to numpy",
    "bench --output x.txt",
    "bench --output /no/such/folder/x.json",
    "bench --html x.json",
    "bench --compare /no/such.json",
    "bench --compare x.json",
    "bench --compare a.json b.json c.json",
    "bench --compare a.json --sizes 4K",
    "bench --compare a.json b.json --html x.html",
    "convert x.npz x.npz",
    "convert x.npz y.npz --names c",
    "attach hello --timeout never",
)


def test_wording(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    ferry.save("x.npz", {"a": np.ones(2)})
    (tmp_path / "x.json").write_text("[]")
    parser = cli.parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    texts = {"tensorferry --help": parser.description + "\n\n" + parser.epilog}
    for name, command in commands.choices.items():
        helps = [f"{a.option_strings or [a.metavar or a.dest]}: {a.help}" for a in command._actions]
        texts[f"tensorferry {name} --help"] = "\n".join(
            [command.description, *helps, command.epilog]
        )
    for line in ERRORS:
        assert cli.main(line.split()) in (2, 3), line
        texts[line] = capsys.readouterr().err
    golden_text.check("cli", texts)


@pytest.mark.parametrize("line", ERRORS)
def test_errors_have_a_hint(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    ferry.save("x.npz", {"a": np.ones(2)})
    (tmp_path / "x.json").write_text("[]")
    assert cli.main(line.split()) in (2, 3)
    fact, hint = capsys.readouterr().err.splitlines()
    assert fact.startswith("error: ")
    assert hint.startswith("hint: ")
