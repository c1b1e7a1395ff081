"""Runs the code of a page, top to bottom, as one script: `python docs/run.py PAGE`.

Blocks that begin with three backquotes and `python` run anywhere; those with `py` need a CUDA GPU,
and are a script of their own: `--gpu` runs these. The README has the same two kinds. Those with
`python3` need the environment of Ray and Dask, and are a third script: `--distributed` runs these.
The code runs in an empty folder that is removed afterwards, and a traceback names the line of the
page.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page of the site that is written by hand."""
    return sorted(HERE.rglob("*.md"))


def blocks(text: str, kind: str) -> Iterator[tuple[int, str]]:
    """The blocks of one kind, each with the number of its first line."""
    for found in FENCE.finditer(text):
        if found[1] == kind:
            yield text.count("\n", 0, found.start(2)), found[2]


def script(page: Path, kind: str) -> str:
    """A page's code, every line under the number that it has on the page."""
    lines: list[str] = []
    for first, code in blocks(page.read_text(), kind):
        lines += [""] * (first - len(lines)) + code.splitlines()
    return "\n".join(lines)


def run(page: Path, kind: str) -> None:
    """Runs a page's code in a folder of its own."""
    code = compile(script(page, kind), str(page), "exec")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(code, {"__name__": "__main__"})


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the code of pages, each as one script.")
    parser.add_argument("page", nargs="*", type=Path, help="a page; all of them if left out")
    parser.add_argument("--gpu", action="store_true", help="run the blocks that need a CUDA GPU")
    parser.add_argument(
        "--distributed", action="store_true", help="run the blocks that need Ray or Dask"
    )
    arguments = parser.parse_args()
    kind = "py" if arguments.gpu else "python3" if arguments.distributed else "python"
    if len(arguments.page) == 1:
        run(arguments.page[0].resolve(), kind)
        return
    for page in arguments.page or pages():
        # Each in a process of its own: what a page imports, the next must not need.
        print(page, flush=True)
        option = {"py": ["--gpu"], "python3": ["--distributed"]}.get(kind, [])
        code = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, *option, str(page)])
        if code:
            sys.exit(code)


if __name__ == "__main__":
    main()
