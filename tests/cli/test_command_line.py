"""The command line as users and shells meet it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry
from tensorferry._tools.cli import main
from tensorferry.framework_register import TENSOR_FRAMEWORKS

TENSORFERRY = [sys.executable, "-m", "tensorferry"]


def attempt(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TENSORFERRY, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=HANG_SECONDS,
        check=False,
    )


def test_help_has_examples():
    done = attempt("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    names = ("plan", "doctor", "bench", "inspect", "convert", "publish", "attach", "completion")
    for command in names:
        told = attempt(command, "--help")
        assert told.returncode == 0
        assert f"tensorferry {command}" in told.stdout.split("examples:")[1]


def test_the_version():
    assert attempt("--version").stdout == f"tensorferry {ferry.__version__}\n"


def test_no_command_shows_the_help():
    done = attempt()
    assert done.returncode == 2
    assert "commands:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        (["fly"], 2, '"fly"'),
        (["plan", "numpy"], 2, "TO"),
        (["plan", "numpy", "torch", "--shape", "3,x,y"], 2, '"3,x,y"'),
        (["plan", "numpy", "torch", "--lay", "dense"], 2, "--lay"),
        (["plan", "numpy", "numpy", "--device", "cuda"], 3, "NumPy"),
        (["plan", "numpy", "numpy", "--device", "mars"], 2, "mars"),
        (["plan", "numpy", "numpy", "--to-dtype", "float7"], 2, "float7"),
        (
            ["plan", "numpy", "numpy", "--layout", "transposed", "--no-copy", "--to-dtype", "int8"],
            3,
            "int8",
        ),
    ],
)
def test_errors_are_one_line_and_a_hint(arguments, code, fact):
    done = attempt(*arguments)
    lines = done.stderr.splitlines()
    assert done.returncode == code, done
    assert done.stdout == ""
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("error: ")
    assert fact in lines[0]
    assert lines[1].startswith("hint: ")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("--foo", "run tensorferry --help"),
        ("plan numpy torch --foo", "run tensorferry plan --help"),
        ("plan numpy torch jax", "run tensorferry plan --help"),
        ("plan numpy torch --foo=3", "run tensorferry plan --help"),
        ("bench --foobar", "run tensorferry bench --help"),
        ("plan numpy", "write tensorferry plan FROM TO, or run tensorferry plan --help"),
        ("attach", "write tensorferry attach TICKET, or run tensorferry attach --help"),
        ("plan numpy torch --copi", "did you mean --copy?"),
        ("bench --layout dense", "did you mean --layouts?"),
        ("insepct x.npy", "did you mean inspect?"),
        ("plan numpy torch --layout tranposed", "did you mean transposed?"),
        ("convert x.npy y.npy --to-dtype bf16", "did you mean bfloat16?"),
        ("plan numpy scypi", f"write one of {', '.join(TENSOR_FRAMEWORKS)}"),
    ],
)
def test_wrong_usage_shows_the_help_of_its_command(arguments, hint, capsys):
    assert main(arguments.split()) == 2
    assert capsys.readouterr().err.splitlines()[1] == f"hint: {hint}"


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        *((text, [3, 4]) for text in ("3,4", "3, 4", "(3,4)", "(3, 4)", "[3, 4]", "3x4", "3 x 4")),
        *((text, [3, 4]) for text in ("3 4", " (3,4,) ", "3\N{MULTIPLICATION SIGN}4")),
        *((text, [6]) for text in ("6", "(6,)", "6,")),
        *((text, []) for text in ("", "()", "( )")),
    ],
)
def test_shapes_as_people_write_them(text, lengths, capsys):
    assert main(["plan", "numpy", "numpy", "--json", "--shape", text]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == lengths


@pytest.mark.parametrize("text", ["3,,4", "(3,4", "3,4]", "3,four", "3.5", ",", "x", "1e3", "(,)"])
def test_what_is_no_shape(text, capsys):
    assert main(["plan", "numpy", "numpy", "--shape", text]) == 2
    assert f'"{text}" is not a shape' in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "numpy", "a\\b"],
        ["plan", "numpy", "numpy", "--layout", "a\\b"],
        ["plan", "numpy", "numpy", "--shape", "a\\b"],
        ["plan", "numpy", "numpy", "--to-dtype", "a\\b"],
        ["bench", "--sizes", "a\\b"],
        ["bench", "--dtypes", "a\\b"],
        ["bench", "--layouts", "a\\b"],
        ["publish", "x.npy", "--timeout", "a\\b"],
    ],
)
def test_a_value_is_quoted_as_it_was_written(arguments, capsys):
    assert main(arguments) == 2
    fact = capsys.readouterr().err.splitlines()[0]
    assert '"a\\b"' in fact


def test_debug_shows_the_traceback():
    done = attempt("plan", "numpy", "numpy", "--device", "cuda", "--debug")
    assert done.returncode == 3
    assert "Traceback" in done.stderr


def test_a_plan_in_words_and_for_programs():
    line = ["plan", "numpy", "numpy", "--shape", "40x50", "--layout", "transposed", "--copy"]
    text = attempt(*line)
    assert text.returncode == 0
    assert text.stdout.startswith("numpy -> numpy: copied, 7.8 KiB\n")
    assert "a copy was requested" in text.stdout
    told = json.loads(attempt(*line, "--json").stdout)
    assert (told["shape"], told["bytes_moved"], told["action"]) == ([40, 50], 8000, "copy")


def test_a_plan_between_frameworks():
    done = attempt("plan", "torch", "numpy", "--dtype", "bfloat16", "--layout", "strided", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["source"], told["target"], told["dtype"], told["shares"]) == (
        "torch",
        "numpy",
        "bfloat16",
        True,
    )


def test_a_framework_that_is_not_installed():
    done = attempt("plan", "numpy", "cupy")
    assert done.returncode == 3
    assert "CuPy cannot be imported" in done.stderr


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What the command writes when a terminal reads it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*TENSORFERRY, *arguments],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert process.returncode == 3
    return text.decode()


def test_colours_only_on_a_terminal_and_never_with_no_color():
    line = ["plan", "numpy", "numpy", "--device", "cuda"]
    assert "\x1b[" in on_a_terminal(*line)
    assert "\x1b[" not in on_a_terminal(*line, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(*line, TERM="dumb")
    assert "\x1b[" not in attempt(*line).stderr


def test_a_reader_that_leaves_is_no_error():
    line = " ".join([*TENSORFERRY, "plan", "numpy", "numpy"])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} | true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_bash_completes():
    script = attempt("completion", "bash").stdout
    ask = """
    COMP_WORDS=({words}); COMP_CWORD={last}; _tensorferry; echo "${{COMPREPLY[@]}}"
    """

    def complete(*words: str) -> set[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        code = script + ask.format(words=quoted, last=len(words) - 1)
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return set(done.stdout.split())

    assert {"plan", "completion"} <= complete("tensorferry", "")
    assert complete("tensorferry", "pl") == {"plan"}
    assert complete("tensorferry", "plan", "--layout", "t") == {"transposed"}
    assert "--to-dtype" in complete("tensorferry", "plan", "--")
    assert "tensorflow" in complete("tensorferry", "plan", "numpy", "t")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_scripts(shell):
    done = attempt("completion", shell)
    assert done.returncode == 0
    assert "plan" in done.stdout
    assert "transposed" in done.stdout
