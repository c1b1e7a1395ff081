"""README: it is short, its code runs, its links lead somewhere, and what it claims is so."""

from __future__ import annotations

import json
import re
import runpy
import signal
import tomllib
from pathlib import Path

import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import paddle
import pytest
import tensorflow as tf
import torch
from support import subprocesses
from support.oldest import OLDEST

import tensorferry as ferry

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "README.md").read_text()
LINKS = re.findall(r"\]\(([^)]+)\)", TEXT)
# It is about frameworks of today: older ones fail in other ways.
pytestmark = pytest.mark.skipif(OLDEST, reason="these are the oldest supported frameworks")


def rows(head: str) -> list[list[str]]:
    """The rows of a table, found by the beginning of its head."""
    (table,) = re.findall(rf"^{re.escape(head)}.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.M)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


def test_it_is_read_in_a_minute():
    assert len(TEXT.splitlines()) <= 120


def test_its_code_runs():
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 1
    done = subprocesses.attempt(blocks[0])
    assert done.returncode == 0, done.stderr


# The links.


def test_links_lead_to_files():
    assert len(LINKS) > 25
    for link in LINKS:
        assert (ROOT / link).is_file(), link


def test_a_release_has_absolute_links_and_addresses(tmp_path, monkeypatch):
    manifests = [str(path.relative_to(ROOT)) for path in ROOT.glob("crates/*/Cargo.toml")]
    for name in ("README.md", "pyproject.toml", *manifests):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    program = str(ROOT / ".github" / "name_repository.py")
    host = "https://example.org/owner/tensorferry"

    def run(tag: str) -> None:
        monkeypatch.setattr("sys.argv", [program, host, tag, "--root", str(tmp_path)])
        runpy.run_path(program, run_name="__main__")

    with pytest.raises(SystemExit, match=r"the tag is v9\.9\.9"):
        run("v9.9.9")
    assert (tmp_path / "README.md").read_text() == TEXT
    run(f"v{version}")
    links = re.findall(r"\]\(([^)]+)\)", (tmp_path / "README.md").read_text())
    kinds = ["raw" if link.endswith(".png") else "blob" for link in LINKS]
    assert links == [
        f"{host}/{kind}/v{version}/{link}" for kind, link in zip(kinds, LINKS, strict=True)
    ]
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == host
    assert project["scripts"]
    unpublished = []
    for name in manifests:
        package = tomllib.loads((tmp_path / name).read_text())["package"]
        if "publish" in package:
            unpublished.append(package["name"])
        assert package.get("repository") == (None if "publish" in package else host), name
    assert sorted(unpublished) == ["tensorferry-python", "tensorferry-testdriver"]


@pytest.mark.parametrize(
    "readme", sorted(ROOT.glob("crates/*/README.md")), ids=lambda x: x.parent.name
)
def test_links_of_the_crates_lead_to_files(readme):
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", readme.read_text())
    for link in links:
        assert (readme.parent / link).is_file(), link


# What it claims.


def test_the_failures_are_as_the_table_says():
    """Where a framework no longer fails, the row goes."""
    printed = subprocesses.attempt_program("readme/failure.py")
    assert printed.returncode == 0, printed.stderr
    results = [line.split(": ") for line in printed.stdout.splitlines()]
    shape, read_only, value, aligned, transfer = rows("| one line |")
    for row, (_, native, ours) in zip((shape, read_only, value), results[:3], strict=True):
        assert f"`{native}`" in row[1], row
        assert f"`{ours}`" in row[2], row
    assert results[3] == ["unaligned_memory", "1024"]
    ended = subprocesses.attempt_program("readme/failure.py", "abort")
    assert -ended.returncode == signal.SIGABRT, ended.stderr
    assert "`SIGABRT`" in aligned[1]
    # The calls of the table are those of the program.
    program = subprocesses.read_program("readme/failure.py")
    for row in (shape, read_only, value, aligned):
        call = row[0].split("`")[1]
        assert re.match(r"[\w.]+\((?:\w+\))?", call)[0] in program, call
    first, recycled = (
        record("2026-11-17-intel-xeon-16-cores-nvidia-h200-transfers-gpu", "transfers", job=job)
        for job in ("download, first", "download, dropped")
    )
    speed, share = first["GB/s"] / first["x native"], first["of the limit"] / first["x native"]
    assert transfer[1].startswith(f"{speed:.1f} GB/s: {share:.0%} ")
    assert re.findall(r"(\d+) GB/s", transfer[2]) == [
        f"{row['GB/s']:.0f}" for row in (first, recycled)
    ]


def record(name: str, section: str, **wanted: str) -> dict:
    """The row of a record with these values; of several, the one with the most bytes."""
    read = json.loads((ROOT / "benches" / "records" / f"{name}.json").read_text())
    found = [row for row in read["sections"][section]["rows"] if wanted.items() <= row.items()]
    assert found
    return found[-1]


def test_the_figures_are_those_of_the_records():
    download, load, call = rows("| measured |")
    names = [re.search(r"records/(\S+)\.md", row[3])[1] for row in (download, load, call)]
    row = record(names[0], "transfers", job="download, first")
    assert row["bytes"] == "2048 MiB"
    ours = row["us"] / 1000
    assert download[1:3] == [f"{ours:,.0f} ms", f"{ours * row['x native']:,.0f} ms"]
    row = record(names[1], "gpu_files", job="load, one tensor of 1 GiB")
    assert load[1:3] == [f"{row['ms']:.0f} ms", f"{row['ms'] * row['x best']:.0f} ms"]
    row = record(names[2], "percall", **{"from": "torch", "to": "jax"})
    assert call[1:3] == [f"{row[side] / 1000:.1f} us" for side in ("ours ns", "native ns")]


SOURCES = {
    "NumPy": lambda: np.ones((64, 64), "float32"),
    "PyTorch": lambda: torch.ones(64, 64),
    "JAX": lambda: jnp.ones((64, 64)),
    "TensorFlow": lambda: tf.ones((64, 64)),
    "Paddle": lambda: paddle.ones([64, 64]),
    "MLX": lambda: mx.ones((64, 64)),
}


@pytest.mark.parametrize("row", rows("| from \\ to |"), ids=lambda row: row[0])
def test_the_pairs_are_as_the_table_says(row):
    name = row[0].strip("*")
    source = SOURCES[name]()
    for target, cell in zip(SOURCES, row[1:], strict=True):
        plan = ferry.plan(source, target.lower().replace("pytorch", "torch"))
        # MLX promises no alignment, and the footnote says what follows.
        if name == "MLX" and plan.action == "copy":
            assert target in ("JAX", "TensorFlow")
            assert cell == "share ¹"
        else:
            assert plan.action == cell.removesuffix(" ¹"), target


def test_the_supported_versions_are_those_that_are_tested():
    (supported,) = re.findall(r"^\*\*Supported:\*\*(.*?)\n\n", TEXT, re.M | re.S)
    oldest = (ROOT / "requirements" / "oldest.in").read_text()
    packages = {"PyTorch": "torch", "TensorFlow": "tensorflow-cpu", "Paddle": "paddlepaddle"}
    for name in SOURCES:
        claimed = re.search(rf"\b{name} ([\d.]+)\b", supported)[1]
        package = packages.get(name, name.lower())
        assert re.search(rf"^{package}(?:\[\w+\])?=={re.escape(claimed)}\b", oldest, re.M), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = re.findall(r":: (3\.\d+)", " ".join(project["classifiers"]))
    assert f"CPython {pythons[0]} to {pythons[-1]}," in supported
    assert "MANYLINUX   := manylinux_2_28\n" in (ROOT / "Makefile").read_text()
    assert "glibc 2.28 or later" in supported
