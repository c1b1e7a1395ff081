"""Runs the cells of each framework with each of its fast paths off: `make test-fast-paths`.

One pytest process for each fast path, or for each that is named: the switch is read once in a
process. Each prints one line; the exit code is 1 where any failed, or where no test was chosen.
What a process printed lies in target/fast-paths/.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tensorferry._native import _fast_paths

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "target" / "fast-paths"
DENSE = ("tests/matrix/test_cells.py", "tests/matrix/test_writes.py")
SPARSE = ("tests/sparse_tensors/test_matrix.py",)
# CuPy has no cells in host memory: its tests run on the stand-in for the driver.
ON_STANDIN = ("tests/test_cuda_targets.py", "tests/test_transfers.py")
NO_TESTS = 5  # pytest's exit code


def chosen(name: str) -> list[str]:
    """The tests of a fast path: files, and what their names contain."""
    framework = name.partition(".")[0]
    if framework == "cupy":
        return list(ON_STANDIN)
    if framework == "scipy" or name == "jax.tree_unflatten":
        return [*SPARSE, "-k", framework]
    return [*DENSE, "-k", framework]


def run(name: str, arguments: list[str]) -> bool:
    """The tests with one fast path off; whether they passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{name}.log"
    begin = time.monotonic()
    with path.open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *arguments, *chosen(name)],
            cwd=ROOT,
            env={**os.environ, "TENSORFERRY_DISABLE": name},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    last = "no test was chosen" if done.returncode == NO_TESTS else lines[-1].strip("= ")
    print(f"{name:<28} {last}, after {time.monotonic() - begin:.0f} s", flush=True)
    return done.returncode == 0


def main() -> int:
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    wanted, arguments = given[:end], given[end + 1 :]
    known = [str(row["name"]) for row in _fast_paths()]
    if unknown := set(wanted) - set(known):
        print(f"error: no fast path is called {min(unknown)}; write some of {', '.join(known)}")
        return 2
    failed = [name for name in wanted or known if not run(name, arguments)]
    if failed:
        print(f"failed: {', '.join(failed)} (see {LOGS.relative_to(ROOT)})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
