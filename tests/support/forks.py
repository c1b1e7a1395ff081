"""Children by `fork()`. One that hangs is ended by its alarm, and its exit code tells."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

from support.subprocesses import HANG_SECONDS


def fork(body: Callable[[], object], leave: Callable[[int], object] = os._exit) -> int:
    """Has a child run `body` and leave; gives its number."""
    child = os.fork()
    if child == 0:
        signal.alarm(HANG_SECONDS)
        try:
            body()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        leave(0)
    return child


def wait(child: int) -> None:
    """Waits for a child, which must end well."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
