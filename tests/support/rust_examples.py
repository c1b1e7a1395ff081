"""The example programs of the crate tensorferry, as processes that tests talk to by lines."""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from support.subprocesses import HANG_SECONDS

ROOT = Path(__file__).parents[2]


@functools.cache
def example_path(name: str) -> Path:
    """Builds the examples, and returns the path of one.

    The packages and the profile are those of `make test-rust`, so that nothing is compiled again
    after it.
    """
    command = ["cargo", "build", "--profile", "test", "--examples", "--quiet"]
    command += ["--workspace", "--exclude", "tensorferry-python", "--message-format", "json"]
    command += shlex.split(os.environ.get("CARGO_FLAGS", ""))
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    for line in built.stdout.splitlines():
        described = json.loads(line)
        target = described.get("target", {})
        if target.get("name") == name and target.get("kind") == ["example"]:
            return Path(described["executable"])
    raise AssertionError(f"cargo built no example {name}")


class Example:
    """A running example. It ends when its standard input is closed."""

    def __init__(self, name: str, *arguments: str | Path, **environment: str) -> None:
        self._process = subprocess.Popen(
            [example_path(name), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.number = self._process.pid

    def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the example ended: {self._process.communicate()[1]}"
        return line.removesuffix("\n")

    def ask(self) -> str:
        """Sends an empty line, and returns the next line that it prints."""
        self.send()
        return self.line()

    def send(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Ends it by SIGKILL, and waits until it is gone."""
        self._process.kill()
        self._process.communicate()

    def finish(self) -> tuple[int, str]:
        """Closes its standard input; returns its exit code and what it wrote to stderr."""
        _, errors = self._process.communicate(timeout=HANG_SECONDS)
        return self._process.returncode, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()
