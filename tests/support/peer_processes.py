"""A peer process that calls functions and returns their results.

A function is passed by its name, so it is one of a module, mostly of tests/programs. What a call
leaves in that module, the next one finds there."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from support import subprocesses

P = ParamSpec("P")
T = TypeVar("T")


class PeerError(Exception):
    """What the other process raised, by the name of its class and its words."""

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(trace)
        self.kind = kind
        self.text = text


class Peer:
    """A fresh interpreter that lives until it is closed, with these frameworks."""

    def __init__(self, *frameworks: str, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.peer_processes", str(theirs.fileno()), *frameworks],
                env=subprocesses.program_environment(**environment),
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        self.number = self._process.pid

    def run(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Has a function called there, and waits for its result."""
        self.begin(function, *arguments, **options)
        result: T = self.end()
        return result

    def begin(self, function: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Has a function called there, and does not wait."""
        self._connection.send((function, arguments, options))

    def end(self, timeout: float = subprocesses.HANG_SECONDS) -> Any:
        """The result of the call that was begun."""
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
    subprocesses.import_frameworks(*sys.argv[2:])
    import tensorferry  # noqa: F401

    # The other end has gone: this is over too.
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            function, arguments, options = connection.recv()
            try:
                answer = True, function(*arguments, **options)
            except BaseException as error:
                kind = type(error).__name__
                answer = False, (kind, str(error), traceback.format_exc())
                del error
            connection.send(answer)
            del function, arguments, options, answer


if __name__ == "__main__":
    main()
