"""Ends while three jobs run. The argument says whether a handler at exit waits for the jobs.

The jobs are global, so that they live until the interpreter exits.
"""

from __future__ import annotations

import atexit
import sys
from typing import Any

jobs: list[Any] = []


def last() -> None:
    """Waits for the jobs: each has a result or is cancelled."""
    for job in jobs:
        try:
            job.result()
        except Exception as error:
            # The class cannot be imported before the handler is registered.
            assert type(error).__name__ == "CancelledError", error


if sys.argv[1] == "handler":
    # A handler that was there before tensorferry runs after all that tensorferry does at exit.
    atexit.register(last)

from support.fake_gpu import on_gpu  # noqa: E402
from support.gpu_transfers import MIB, numbers  # noqa: E402

import tensorferry as ferry  # noqa: E402

x = on_gpu(numbers(60 * MIB))
jobs += [ferry.to_async(x, "numpy") for _ in range(3)]
if sys.argv[1] == "sys.exit":
    sys.exit(0)
