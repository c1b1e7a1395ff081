"""The command line on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys

from support.subprocesses import HANG_SECONDS


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "tensorferry", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_doctor_carries_between_gpu_and_host():
    shown = run("doctor", "--frameworks", "numpy,torch,cupy")
    for title in ("cuda:0 to cuda:0", "cpu to cuda:0", "cuda:0 to cpu"):
        assert title in shown
    assert "no problems" in shown


def test_bench_measures_and_checks_on_a_gpu(tmp_path):
    files = ["--output", str(tmp_path / "x.json"), "--html", str(tmp_path / "x.html")]
    ways = ["--from", "numpy,torch", "--to", "torch,cupy", "--sizes", "4K,1M", "--seconds", "0.05"]
    run("bench", "--device", "cuda", *ways, *files)
    rows = json.loads((tmp_path / "x.json").read_text())["rows"]
    ours = [row for row in rows if row["ours"]]
    assert len(ours) >= 4
    assert all(row["error"] is None and row["checked"] and row["seconds"] > 0 for row in ours)
    assert any(row["target_device"].startswith("cuda") for row in ours)
    assert "<svg" in (tmp_path / "x.html").read_text()


def test_a_plan_names_the_transfer_path():
    shown = run("plan", "numpy", "torch", "--shape", "4096,4096", "--device", "cuda")
    assert "through pinned buffers" in shown
    assert "cuda:0" in shown
