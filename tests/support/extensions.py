"""Extension modules in Rust, compiled by cargo for the tests."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


# A folder with compiled modules, for machines without cargo.
COMPILED = "TENSORFERRY_TEST_EXTENSIONS"


@functools.cache
def build(package: str) -> Path:
    """Compiles a package of the workspace, and returns its module as a file that Python imports.

    The profile is that of `make test-rust`, which has compiled the dependencies already.
    """
    name = package.replace("-", "_")
    if folder := os.environ.get(COMPILED):
        return Path(folder) / f"{name}.abi3.so"
    environment = {
        "PYO3_PYTHON": sys.executable,
        **os.environ,
        # As maturin does: the module does not link libpython.
        "PYO3_BUILD_EXTENSION_MODULE": "1",
    }
    command = ["cargo", "build", "--locked", "--profile", "test", "--package", package]
    done = subprocess.run(
        [*command, "--quiet", "--message-format", "json-render-diagnostics"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        built = json.loads(line)
        if built["reason"] == "compiler-artifact" and built["target"]["name"] == name:
            (library,) = built["filenames"]
    module = Path(tempfile.mkdtemp(prefix="extension-")) / f"{name}.abi3.so"
    shutil.copy(library, module)
    return module


@functools.cache
def load(package: str) -> ModuleType:
    """Compiles a package and imports its module."""
    module = build(package)
    name = module.name.partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
