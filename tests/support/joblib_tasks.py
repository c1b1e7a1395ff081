"""What runs in workers of joblib.

A worker imports this module, which imports no framework: to import all takes longer than the tests.
"""

from __future__ import annotations

import os
from typing import Any

from support import ray_tasks


def see_and_return(
    tensors: dict[str, Any],
) -> tuple[dict[str, ray_tasks.Seen], dict[str, Any], int]:
    """What arrived, the tensors themselves on their way back, and the process."""
    return *ray_tasks.see_and_return(tensors), os.getpid()


def stream_of(x: Any) -> bytes:
    """What joblib in this process sends for an object."""
    from joblib.externals.loky.backend import reduction

    return bytes(reduction.dumps(x))
