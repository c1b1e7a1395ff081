"""`tensorferry bench`, as somebody at a terminal meets it, and what it is made of."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import timeit
import types
from html import escape
from pathlib import Path

import pytest
import torch
from support import fake_driver, fake_frameworks, subprocesses
from support.bench import OPTIONS, settings, tensorferry
from support.share_counts import soon
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry
from tensorferry._tools import cli, report
from tensorferry._tools.bench import measure, methods, results, run, sources

KIB, MIB = 1 << 10, 1 << 20
FIELDS = (
    *("source", "target", "source_device", "target_device", "dtype", "layout", "bytes", "method"),
    *("ours", "shares", "seconds", "low", "high", "calls", "rounds"),
    *("ratio", "ratio_low", "ratio_high", "extra_bytes", "checked", "error"),
)


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[str, Path]:
    """A real run, by the command line: what it printed, and the file that it wrote."""
    path = tmp_path_factory.mktemp("bench") / "result.json"
    names = ("--from", "numpy,torch", "--to", "torch,numpy")
    sizes = ("--sizes", "4K,16M", "--seconds", 0.01)
    done = tensorferry("bench", *names, *sizes, "--output", path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, path


@pytest.fixture
def result(real) -> dict:
    return results.read(real[1])


def row_of(result: dict, method: str, size: int) -> dict:
    (row,) = (row for row in result["rows"] if row["method"] == method and row["bytes"] == size)
    return row


def test_a_real_run_has_every_field_of_every_row(result):
    assert result["format"] == "tensorferry-bench/1"
    assert result["machine"]["torch"] == torch.__version__.partition("+")[0]
    assert result["settings"]["pairs"] == [["numpy", "torch"], ["torch", "numpy"]]
    assert result["settings"]["sizes"] == [4 * KIB, 16 * MIB]
    assert result["settings"]["seconds"] == 0.01
    assert [entry["bytes"] for entry in result["limits"]["memcpy"]] == [4 * KIB, 16 * MIB]
    assert all(entry["seconds"] > 0 for entry in result["limits"]["memcpy"])
    for row in result["rows"]:
        assert tuple(row) == FIELDS
        assert row["error"] is None
        assert row["checked"]
        assert 0 < row["low"] <= row["seconds"] <= row["high"]
        assert row["calls"] >= row["rounds"] >= measure.MIN_ROUNDS
        if row["ours"]:
            assert row["ratio"] is None
        else:
            assert 0 < row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert 0 <= result["load"]["others"] <= 1
    assert 0 <= result["load"]["steal"] <= 1
    assert result["load"]["control"] > 0


def test_a_real_run_has_ours_and_all_kinds_of_native_methods_in_each_cell(result):
    cells = results.cells(result)
    assert len(cells) == 4
    for rows in cells.values():
        assert sum(row["ours"] for row in rows) == 1
        assert results.ours(rows)["method"] == f'ferry.to(x, "{rows[0]["target"]}")'
        methods = {row["method"] for row in rows}
        wanted = {
            "torch": {"torch.from_numpy(x)", "torch.as_tensor(x)", "torch.tensor(x)"},
            "numpy": {"x.numpy()", "np.from_dlpack(x)", "x.numpy().copy()"},
        }[rows[0]["target"]]
        assert wanted <= methods
        assert any(method.startswith("np.save(") for method in methods)


def test_a_real_run_knows_who_shares_and_what_memory_a_call_takes(result):
    for size in (4 * KIB, 16 * MIB):
        for shared in ("torch.from_numpy(x)", "x.numpy()", 'ferry.to(x, "torch")'):
            assert row_of(result, shared, size)["shares"] is True
        for copied in ("torch.tensor(x)", "x.numpy().copy()", "torch.from_numpy(x.copy())"):
            assert row_of(result, copied, size)["shares"] is False
    extra = {row["method"]: row["extra_bytes"] for row in result["rows"] if row["bytes"] > MIB}
    for copied in ("torch.tensor(x)", "x.numpy().copy()", "torch.from_numpy(x.copy())"):
        assert 15.5 * MIB <= extra[copied] <= 19 * MIB, copied
    for shared in ("torch.from_numpy(x)", "x.numpy()", 'ferry.to(x, "torch")'):
        assert extra[shared] <= MIB, shared
    small = [row["extra_bytes"] for row in result["rows"] if row["bytes"] < MIB]
    assert set(small) == {None}


def test_a_real_run_prints_a_line_for_each_cell(real):
    lines = [line for line in real[0].splitlines() if " to " in line and "iB" in line]
    assert len(lines) == 4
    share = re.fullmatch(
        r"numpy to torch +16 MiB +[\d.]+ [nu]s +[\d.]+ [nu]s +[\d.]+ +(ahead|level|behind)"
        r" +shared +\S+ \w+ +\S.*",
        lines[1].rstrip(),
    )
    assert share, lines[1]
    assert "\r" not in real[0]
    assert re.search(
        r"^median ratio [\d.]+, from [\d.]+ to [\d.]+; in 4 comparisons, ferry.to is "
        r"ahead in \d, level in \d, behind in \d$",
        real[0],
        re.MULTILINE,
    )
    assert "95% confidence interval" in real[0]


def test_the_file_can_be_read_by_others(real):
    _, path = real
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert [entry.name for entry in path.parent.iterdir()] == ["result.json"]


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_wrong_results_are_reported_and_neither_timed_nor_ranked(monkeypatch):
    calls = iter(range(10**9))

    def fickle(x):
        return torch.from_numpy(x if next(calls) < 3 else x + 1)

    monkeypatch.setattr(torch, "fickle", fickle, raising=False)
    wrong = {
        "torch.from_numpy({} + 1)": "gives wrong values",
        "torch.from_numpy({}).double()": "gives float64, not float32",
        "torch.from_numpy({}).reshape(-1)": "gives the shape (1024,), not (32, 32)",
        "{}": "gives a numpy.ndarray, not a tensor of torch",
        "torch.no_such({})": "AttributeError: module 'torch' has no attribute 'no_such'",
        "torch.fickle({})": "gives wrong values",
    }
    monkeypatch.setitem(methods.NUMPY_TO_HOST, "torch", ["torch.tensor({})", *wrong])
    found = run.run(settings(("numpy", "torch")))
    rows = {row["method"]: row for row in found["rows"]}
    for code, error in wrong.items():
        row = rows[code.format("x")]
        assert row["error"] == error
        assert not row["checked"]
        assert row["seconds"] is row["low"] is row["high"] is row["extra_bytes"] is None
    assert results.best_native(found["rows"])["method"] == "torch.tensor(x)"
    assert results.ours(found["rows"])["checked"]


def test_a_wrong_result_of_ours_is_an_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(methods, "ours", lambda target, devices: methods.Method("np.array(x) + 1"))
    assert cli.main(OPTIONS) == 1
    assert "mlx to numpy: np.array(x) + 1: gives wrong values" in capsys.readouterr().out


def test_every_layout_is_shared_exactly_where_the_plan_says(monkeypatch):
    monkeypatch.setattr(methods, "natives", lambda *_: [methods.Method("torch.tensor(x)")])
    found = run.run(settings(("numpy", "torch"), layouts=sources.LAYOUTS, sizes=(64 * KIB,)))
    ours = {row["layout"]: row for row in found["rows"] if row["ours"]}
    assert list(ours) == list(sources.LAYOUTS)
    for layout, row in ours.items():
        x = sources.make("numpy", (128, 128), dtype="float32", layout=layout, device="cpu")
        assert row["shares"] is ferry.plan(x, "torch").shares, layout
        assert row["checked"]
    assert ours["transposed"]["shares"] is True
    assert ours["reversed"]["shares"] is False
    wrong = [row["layout"] for row in found["rows"] if not row["ours"] and row["error"]]
    assert wrong == ["reversed"]  # torch.tensor refuses it


def test_a_source_lies_where_the_layout_says():
    for dtype in ("float32", "bfloat16", "bool", "complex128"):
        for layout in ("dense", "transposed", "unaligned"):
            x = sources.make("numpy", (4, 8), dtype=dtype, layout=layout, device="cpu")
            assert x.shape == (4, 8)
            memory = x if x.base is None else x.base
            past = x.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
            assert past == (16 if layout == "unaligned" else 0)
    x = sources.make("torch", (4, 8), dtype="float32", layout="unaligned", device="cpu")
    assert x.data_ptr() % 64 == 16
    found = run.run(settings(("torch", "jax"), layouts=("dense", "unaligned"), methods="ours"))
    assert [row["shares"] for row in found["rows"]] == [True, False]
    found = run.run(settings(("numpy", "jax"), layouts=("dense",), methods="ours"))
    assert [row["shares"] for row in found["rows"]] == [False]


def test_what_a_framework_does_not_have_is_left_out_and_said():
    found = run.run(
        settings(("jax", "numpy"), ("numpy", "jax"), layouts=("transposed",), methods="ours")
    )
    assert [row["source"] for row in found["rows"]] == ["numpy"]
    (note,) = found["notes"]
    assert note.startswith("jax has no transposed tensors: ")


def test_best_measures_ours_and_the_quickest_native_method():
    found = run.run(settings(("numpy", "torch"), methods="best", sizes=(MIB,), seconds=0.02))
    assert len(found["rows"]) == 2
    assert [row["ours"] for row in found["rows"]] == [True, False]
    assert found["rows"][1]["shares"] is True


def test_all_pairs_have_native_methods_with_names_of_their_own():
    for source in methods.HOST_TO_NUMPY:
        for target in methods.HOST_TO_NUMPY:
            if source != target:
                found = [method.text for method in methods.natives(source, target, ("cpu", "cpu"))]
                assert len(found) == len(set(found)) >= 3
                for text in found:
                    compile(text, text, "exec")
    uploads = methods.natives("numpy", "torch", ("cpu", "cuda"))
    assert "torch.from_numpy(x).cuda()" in [method.text for method in uploads]
    downloads = methods.natives("cupy", "numpy", ("cuda", "cpu"))
    assert {"cupy.asnumpy(x)", "x.get()"} <= {method.text for method in downloads}
    assert methods.ours("torch", ("cpu", "cuda")).text == 'ferry.to(x, "torch", device="cuda")'


def test_methods_alternate_and_a_slow_one_skips_rounds():
    order = []

    def job(name: str, seconds: float) -> measure.Timer:
        return lambda calls: order.append(name) or calls * seconds

    times = measure.time_alternating({"slow": job("slow", 10.0), "quick": job("quick", 1e-3)}, 1.5)
    assert len(times["slow"].rounds) == measure.MIN_ROUNDS
    assert len(times["quick"].rounds) == measure.MAX_ROUNDS
    assert times["quick"].quartiles == (1e-3, 1e-3, 1e-3)
    assert times["slow"].calls == 3
    rounds = order[order.index("quick") :]
    assert re.match("(quick )+slow quick quick slow slow quick quick", " ".join(rounds))


def test_a_fresh_source_is_made_before_each_call_and_not_timed(monkeypatch):
    """By a clock that only the functions of this test advance, each by seconds of its own."""
    made, seen, waits = [], [], []
    seconds = 0.0

    def clock() -> float:
        return seconds

    def advance(by: float) -> None:
        nonlocal seconds
        seconds += by

    def make() -> int:
        advance(100)
        made.append(len(made))
        return made[-1]

    def use(x: int) -> None:
        advance(1)
        seen.append(x)

    def synchronise() -> None:
        advance(0.25)
        waits.append(1)

    timer = functools.partial(timeit.Timer, timer=clock)
    monkeypatch.setattr(measure, "timeit", types.SimpleNamespace(Timer=timer))
    monkeypatch.setattr(measure, "time", types.SimpleNamespace(perf_counter=clock))
    names = {"make": make, "use": use}
    job = measure.make_timer("use(x)", names, fresh="x = make()", synchronise=synchronise)
    # Of the two waits of a call, the one before it is not timed either.
    assert job(3) == 3 * (1 + 0.25)
    assert made == seen == [0, 1, 2]
    assert len(waits) == 6


def test_on_a_gpu_what_crosses_is_timed_from_idle_to_idle():
    done = subprocesses.attempt_program("cli/bench_on_fake_gpu.py", **fake_driver.environment())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in ("memcpy", "upload", "download"):
        assert [entry["bytes"] for entry in found["limits"][name]] == [4096, 4 * MIB]
    rows = {(row["method"], row["bytes"]): row for row in found["rows"]}
    places = {(row["source_device"], row["target_device"]) for row in found["rows"]}
    assert places == {("cpu", "cuda"), ("cuda", "cpu")}
    for size in (4096, 4 * MIB):
        for method in ('ferry.to(x, "cupy")', "cupy.asarray(x)", "cupy.asnumpy(x)", "x.get()"):
            assert rows[method, size]["checked"], rows[method, size]["error"]
            assert rows[method, size]["shares"] is False
    assert rows["x.get()", 4 * MIB]["extra_bytes"] >= 3.9 * MIB


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        ("--sizes 4Q", 2, '"4Q"'),
        ("--sizes 100", 2, '"100"'),
        ("--sizes=-4K", 2, '"-4K"'),
        ("--sizes ,", 2, "sizes"),
        ("--sizes 65536G --from numpy --to mlx", 3, "MiB are free"),
        ("--from nunpy", 2, 'unknown framework "nunpy"'),
        ("--from numpy --to numpy", 2, "numpy"),
        ("--dtypes float33", 2, '"float33"'),
        ("--layouts round", 2, '"round"'),
        ("--seconds long", 2, '"long"'),
        ("--seconds nan", 2, '"nan"'),
        ("--device cuda --from numpy --to mlx", 3, "CUDA GPU"),
        ("--from mlx --to numpy --layouts reversed", 3, "measured: mlx"),
        ("--output x.txt", 2, "--output x.txt"),
        ("--output /no/such/folder/x.json", 3, "/no/such/folder/x.json"),
        ("--html x.json", 2, "--html x.json"),
        ("--compare /no/such.json", 3, "/no/such.json cannot be read: No such file"),
        ("--compare /dev/null", 3, "/dev/null"),
        ("--compare a.json b.json c.json", 2, "not 3"),
        ("--compare a.json --sizes 4K", 2, "--sizes"),
        ("--compare a.json b.json --html x.html", 2, "two files"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_hint(arguments, code, fact, capsys):
    assert cli.main(["bench", *arguments.split()]) == code
    out, error = capsys.readouterr()
    assert out == ""
    first, second = error.splitlines()
    assert first.startswith("error: ")
    assert fact in first
    assert second.startswith("hint: ")


def test_a_framework_that_cannot_be_imported_is_said_and_left_out(tmp_path):
    broken = fake_frameworks.install(tmp_path, mlx=["fail", "RuntimeError", "broken"])
    here = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    asked = ("--from", "numpy", "--to", "mlx", "--sizes", "4K")
    done = tensorferry("bench", *asked, PYTHONPATH=here, **broken)
    assert done.returncode == 3
    note, error, hint = done.stderr.splitlines()
    assert note == "note: mlx: broken"
    assert error.startswith("error: ")
    assert hint.startswith("hint: install")


def test_json_goes_to_standard_output_and_nothing_is_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tensorferry", *OPTIONS, "--methods", "ours", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.path.abspath(os.environ.get("PYTHONPATH", "."))},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=True,
    )
    found = json.loads(done.stdout)
    assert [row["method"] for row in found["rows"]] == ['ferry.to(x, "numpy")']
    assert list(tmp_path.iterdir()) == []


def test_a_folder_gets_both_files(tmp_path, capsys):
    folder = tmp_path / "results"
    assert cli.main([*OPTIONS, "--output", str(folder)]) == 0
    found = results.read(folder / "tensorferry-bench.json")
    html = (folder / "tensorferry-bench.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert all(escape(row["method"]) in html for row in found["rows"])
    assert len(list(folder.iterdir())) == 2
    assert f"wrote {folder / 'tensorferry-bench.html'}" in capsys.readouterr().out


def test_the_figures_stay_when_the_report_fails(monkeypatch, tmp_path, capsys):
    """What took minutes to measure is not lost, and no file is half there."""

    def render(result: dict) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(report, "render", render)
    asked = [*OPTIONS, "--output", str(tmp_path / "x.json"), "--html", str(tmp_path / "x.html")]
    assert cli.main(asked) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert results.cells(results.read(tmp_path / "x.json"))
    assert "error: disk full" in capsys.readouterr().err


class RecordingTerminal:
    """A run whose standard error is a terminal."""

    def __init__(self, tmp_path: Path, *wanted: str) -> None:
        arguments = (
            "--from",
            "numpy",
            "--to",
            "mlx",
            "--output",
            str(tmp_path / "x.json"),
            *wanted,
        )
        self.terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tensorferry", "bench", *arguments],
            env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str, *, seconds: float = HANG_SECONDS) -> str:
        """What it showed until it showed `text`, or ended."""
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if not select.select([self.terminal], [], [], 1)[0]:
                continue
            with contextlib.suppress(OSError):  # all of it has been read
                if more := os.read(self.terminal, 4096).decode():
                    self.seen += more
                    continue
            break
        return self.seen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        os.close(self.terminal)


@pytest.fixture
def record(tmp_path):
    runs = []

    def start(*arguments: str) -> RecordingTerminal:
        runs.append(RecordingTerminal(tmp_path, *arguments))
        return runs[-1]

    yield start
    for one in runs:
        one.close()


def test_a_bar_is_drawn_on_a_terminal_and_taken_away(record, tmp_path):
    run = record("--sizes", "4K", "--seconds", "0.05")
    out, _ = run.process.communicate(timeout=HANG_SECONDS)
    seen = run.read_until("never shown")
    assert run.process.returncode == 0
    assert re.search(r"\[#*\.*\] \d+/\d+ numpy to mlx, float32, dense", seen)
    assert seen.endswith("\r\x1b[K")
    assert "[#" not in out


def test_an_interrupt_leaves_no_file_and_gives_130(record, tmp_path):
    run = record("--sizes", "4K", "--seconds", "3000")
    assert "numpy to mlx" in run.read_until("numpy to mlx, float32")
    assert soon(lambda: [entry.name[:18] for entry in tmp_path.iterdir()] == ["tensorferry-bench-"])
    run.process.send_signal(signal.SIGINT)
    out, _ = run.process.communicate(timeout=HANG_SECONDS)
    assert run.process.returncode == 130
    assert out == ""
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in run.read_until("never shown")


def test_an_interrupt_in_code_from_a_string_gives_130(tmp_path):
    interrupted = fake_frameworks.install(tmp_path, mlx=["interrupt_text"])
    here = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    asked = ("--from", "numpy", "--to", "mlx", "--sizes", "4K")
    done = tensorferry("bench", *asked, PYTHONPATH=here, **interrupted)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_help_says_what_is_written_and_where():
    done = tensorferry("bench", "--help")
    assert done.returncode == 0
    assert "--output DIR writes DIR/tensorferry-bench.json" in done.stdout
