"""A peer process that runs code and returns its result."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import traceback
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from support import subprocesses


class PeerError(Exception):
    """What the other process raised, by the name of its class and its words."""

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(trace)
        self.kind = kind
        self.text = text


class Peer:
    """A fresh interpreter that lives until it is closed, with `ferry`, `np` and these frameworks.

    Code runs in one namespace, so that what one call leaves there, the next one finds. What it
    calls `result` comes back.
    """

    def __init__(self, *frameworks: str, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        quiet = {
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "JAX_PLATFORMS": "cpu",
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": os.pathsep.join(
                filter(None, (subprocesses.TESTS, os.environ.get("PYTHONPATH")))
            ),
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.peer_processes", str(theirs.fileno()), *frameworks],
                env={**os.environ, **quiet, **environment},
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        self.number = self._process.pid

    def run(self, code: str, **values: Any) -> Any:
        """Runs code there, with these names, and waits for its `result`."""
        self.begin(code, **values)
        return self.end()

    def begin(self, code: str, **values: Any) -> None:
        """Has code run there, and does not wait."""
        self._connection.send((textwrap.dedent(code), values))

    def end(self, timeout: float = subprocesses.HANG_SECONDS) -> Any:
        """What came of the code that was begun."""
        if not self._connection.poll(timeout):
            self.kill()
            raise TimeoutError(f"the other process said nothing for {timeout} seconds")
        good, answer = self._connection.recv()
        if not good:
            raise PeerError(*answer)
        return answer

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Stops it, until SIGCONT."""
        subprocesses.stop(self._process)

    def kill(self) -> int:
        """Ends it by SIGKILL, and waits until it is gone."""
        self._process.kill()
        return self.wait()

    def wait(self, timeout: float = subprocesses.HANG_SECONDS) -> int:
        """Waits until it has ended, and gives its exit code."""
        return self._process.wait(timeout)

    def leave(self) -> int:
        """Has it end in good order, and gives its exit code."""
        self._connection.close()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is not None:
            self._connection.close()
        elif error is not None:
            self._connection.close()
            self.kill()
        else:
            status = self.leave()
            assert status == 0, f"the other process ended with {status}"


def main() -> None:
    """The other process."""
    connection = Connection(int(sys.argv[1]))
    for name, line in subprocesses.IMPORTS.items():
        if name in sys.argv[2:]:
            importlib.import_module(line.removeprefix("import "))
    import numpy as np

    import tensorferry as ferry

    names: dict[str, Any] = {"np": np, "ferry": ferry, "__name__": "peer"}
    # The other end has gone: this is over too.
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            code, values = connection.recv()
            names.update(values, result=None)
            try:
                exec(code, names)
                answer = True, names.pop("result", None)
            except BaseException as error:
                kind = type(error).__name__
                answer = False, (kind, str(error), traceback.format_exc())
                del error
            connection.send(answer)
            del code, values, answer


if __name__ == "__main__":
    main()
