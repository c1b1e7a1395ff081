"""Runs scripts in forks of this process, which has imported frameworks and used none.

Each line of stdin is the JSON of a script's arguments; the answer is its exit code and what it
printed. `support.interpreter_pool` starts this program.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import sys
import tempfile
from typing import IO

import numpy  # noqa: F401
import torch  # noqa: F401

import jax.numpy  # noqa: F401  # isort: skip


def run_script(argv: list[str], shown: IO[bytes]) -> int:
    """Runs a script in this process, which is a child, with its output in a file."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(shown.fileno(), 1)
    os.dup2(shown.fileno(), 2)
    sys.argv = argv
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end_daemons() -> None:
    """Ends workers, such as those of a DataLoader, which `os._exit` leaves alive."""
    for worker in multiprocessing.active_children():
        if worker.daemon:
            worker.terminate()
            worker.join()


for line in sys.stdin:
    with tempfile.TemporaryFile() as shown:
        child = os.fork()
        if not child:
            code, process = 1, os.getpid()
            try:
                code = run_script(json.loads(line), shown)
                # A fork that the script made may come here too.
                if os.getpid() == process:
                    end_daemons()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        shown.seek(0)
        print(json.dumps([code, shown.read().decode()]), flush=True)
