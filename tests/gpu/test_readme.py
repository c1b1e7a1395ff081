"""What the README shows for a GPU runs on one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from gpu.frames import FRAMES

import tensorferry as ferry


def test_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent.parent.parent / "README.md").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if "tf1" not in block]
    assert blocks
    if "cupy" not in FRAMES:
        pytest.skip("CuPy is not here")
    names = {"torch": torch, "np": np, "ferry": ferry}
    for block in blocks:
        exec(block, names)
