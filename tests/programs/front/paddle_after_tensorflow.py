"""Asks for Paddle after TensorFlow in every way that imports it: each is refused.

The argument says who imports TensorFlow: `caller`, or `ferry` by its first conversion.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import tempfile

if sys.argv[1] == "caller":
    importlib.import_module("tensorflow")

import numpy as np
from support.errors import raised

import tensorferry as ferry
from tensorferry import framework_register

if sys.argv[1] == "ferry":
    ferry.to(np.arange(6, dtype=np.float32), "tensorflow")

from tensorferry._tools import samples

x = np.arange(6, dtype=np.float32)
file = pathlib.Path(tempfile.mkdtemp()) / "x.npy"
ferry.save(file, x)
ticket = ferry.publish(x)
for way in (
    lambda: ferry.to(x, "paddle"),
    lambda: ferry.to(x, framework="paddle", copy=True),
    lambda: ferry.to({"a": [x]}, "paddle"),
    lambda: ferry.plan(x, "paddle"),
    lambda: ferry.to_async(x, "paddle").result(),
    lambda: ferry.load(file, "paddle"),
    lambda: ferry.attach(ticket, "paddle"),
    lambda: ferry.empty_shared((2, 3), "float32", framework="paddle"),
    lambda: ferry.via("paddle")(lambda t: t)(x),
    lambda: ferry.via("numpy", returns="paddle")(lambda a: a)(x),
    lambda: framework_register.load("paddle"),
    lambda: samples.make("paddle", (2, 3)),
):
    for _ in range(2):
        error = raised(ferry.FrameworkNotFoundError, way)
        fact, hint = str(error).split("\nhint: ")
        assert "paddle after tensorflow" in fact, fact
        assert "SIGSEGV" in fact, fact
        assert hint.startswith("import paddle before tensorflow"), hint
        assert isinstance(error, ImportError)
assert "paddle" not in sys.modules
# All else goes on.
assert (ferry.to(ferry.to(x, "tensorflow"), "numpy") == x).all()
assert {info.name for info in ferry.frameworks() if info.loaded} >= {"numpy", "tensorflow"}
assert not next(info.loaded for info in ferry.frameworks() if info.name == "paddle")
