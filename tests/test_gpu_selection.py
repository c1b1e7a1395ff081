"""The quick set and the shards of the GPU tests, tried on tests that need no GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from support.subprocesses import TESTS, program_path

ALL = {
    *(
        f"test_pair[{pair}-{dtype}]"
        for pair in ("torch-jax", "jax-torch")
        for dtype in ("float32", "int8")
    ),
    *(f"test_sizes[{size}]" for size in (1, 2, 3)),
    *(f"TestGroup::test_sizes[{size}]" for size in (1, 2)),
    *(f"test_pages[{page}]" for page in ("first", "second")),
    "test_plain",
    "test_slow",
}
QUICK = ALL - {"test_pair[jax-torch-int8]", "test_pages[second]", "test_slow"}


def collect(folder: Path, *options: str) -> tuple[set[str], str]:
    """The tests that pytest selects, and the selection that a record would name."""
    shutil.copy(program_path("front/selection_conftest.py"), folder / "conftest.py")
    shutil.copy(program_path("front/selection_tests.py"), folder / "test_parts.py")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    done = subprocess.run(
        [*command, "-o", f"pythonpath={TESTS}", "--rootdir", str(folder), str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    selection = next(
        (line for line in lines if line.startswith("selection: ")), done.stdout + done.stderr
    )
    return {line.split("::", 1)[1] for line in lines if "::" in line}, selection


def test_the_quick_set_has_each_test_and_each_pair_once(tmp_path):
    assert collect(tmp_path) == (ALL, "selection: {}")
    assert collect(tmp_path, "--quick") == (QUICK, "selection: {'set': 'quick'}")


def test_shards_divide_the_tests_by_time(tmp_path):
    durations = tmp_path / "durations.json"
    seconds = {f"test_parts.py::{name}": 1.0 for name in ALL} | {"test_parts.py::test_plain": 100.0}
    durations.write_text(json.dumps(seconds))
    options = ["--splitting-algorithm", "least_duration", "--durations-path", str(durations)]
    shards = [
        collect(tmp_path, "--splits", "3", "--group", str(group), *options) for group in (1, 2, 3)
    ]
    assert [selection for _, selection in shards] == [
        f"selection: {{'shard': '{group}-of-3'}}" for group in (1, 2, 3)
    ]
    assert set().union(*(tests for tests, _ in shards)) == ALL
    assert sum(len(tests) for tests, _ in shards) == len(ALL)
    assert {"test_plain"} in [tests for tests, _ in shards]
