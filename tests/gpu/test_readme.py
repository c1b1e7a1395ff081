"""What the README and the documentation show for a GPU runs on one."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

ROOT = Path(__file__).parent.parent.parent


def blocks(page: Path) -> list[str]:
    """The blocks of a page that need a GPU."""
    return re.findall(r"^```py\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if blocks(page)]


def test_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = blocks(ROOT / "README.md")
    assert shown
    if "cupy" not in GPU_FRAMEWORKS:
        pytest.skip("CuPy is not here")
    names = {"torch": torch, "np": np, "ferry": ferry}
    for block in shown:
        exec(block, names)


@pytest.mark.one_case
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_documentation(page):
    """In a process of its own, as one script."""
    wanted = set(re.findall(r"^import (\w+)", "\n".join(blocks(page)), re.MULTILINE))
    missing = sorted(name for name in wanted if importlib.util.find_spec(name) is None)
    missing += sorted((wanted & {"cupy", "jax", "tensorflow"}) - set(GPU_FRAMEWORKS) - set(missing))
    if missing:
        pytest.skip(f"{', '.join(missing)}: not here, or not on the GPU")
    command = [sys.executable, str(ROOT / "docs" / "run.py"), "--gpu", str(page)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
