"""A module in place of a framework. Tests install it under the name of the framework.

FAKE_FRAMEWORKS says what happens at the import: JSON with a list for each name, of which the first
item is a function of this file, and the others are its arguments. The module itself has as much of
TensorFlow as `tensorferry doctor` needs to find it healthy; no tensor can be converted to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

config = SimpleNamespace(list_physical_devices=lambda kind: [])
test = SimpleNamespace(is_built_with_cuda=lambda: False)
# Longer than any test waits, so that the process hangs; it still ends by itself.
HANG_SECONDS = 3600


def local_devices(backend: str) -> None:
    """JAX's function, which ends the process here."""
    os.kill(os.getpid(), signal.SIGILL)


def work() -> None:
    """Nothing goes wrong."""


def abort() -> None:
    """Writes two lines on standard error and aborts."""
    sys.stderr.write("out of\nluck\n")
    sys.stderr.flush()
    os.abort()


def fail(kind: str, text: str) -> None:
    """Raises an error."""
    raise {"ImportError": ImportError, "RuntimeError": RuntimeError}[kind](text)


def interrupt_text() -> None:
    """Is interrupted in code from a string, such as that of a named tuple."""
    exec("raise KeyboardInterrupt")


def leave() -> None:
    """Ends the process in order, with exit code 3."""
    sys.exit(3)


def hang() -> None:
    """Does not come back."""
    time.sleep(HANG_SECONDS)


def hang_with_a_child(path: str) -> None:
    """Starts a process, writes the numbers of both processes to a file, and does not come back."""
    started = subprocess.Popen(["sleep", str(HANG_SECONDS)])
    with open(path + ".new", "w") as file:
        file.write(f"{os.getpid()} {started.pid}")
    os.rename(path + ".new", path)
    hang()


def abort_after(*modules: str) -> None:
    """Aborts if all these modules are loaded."""
    if set(modules) <= set(sys.modules):
        os.abort()


def abort_before(module: str) -> None:
    """Aborts when this module is imported later."""

    class RefusedImport:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == module:
                os.abort()

    sys.meta_path.insert(0, RefusedImport())


def abort_with(module: str) -> None:
    """Aborts whichever of the two comes first."""
    abort_after(module)
    abort_before(module)


FUNCTIONS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        *(work, abort, fail, interrupt_text, leave, hang, hang_with_a_child),
        *(abort_after, abort_before, abort_with),
    )
}
_name, *_arguments = json.loads(os.environ["FAKE_FRAMEWORKS"])[__name__]
FUNCTIONS[_name](*_arguments)
