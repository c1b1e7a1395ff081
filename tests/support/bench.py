"""The command `tensorferry` in a child, and small benches for the tests of `tensorferry bench`."""

from __future__ import annotations

import os
import subprocess
import sys

from support.subprocesses import HANG_SECONDS

from tensorferry._tools.bench import run

OPTIONS = ["bench", "--from", "mlx", "--to", "numpy", "--sizes", "4K", "--seconds", "0.001"]


def tensorferry(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tensorferry", *map(str, arguments)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def settings(*pairs: tuple[str, str], **more) -> run.Settings:
    wanted = {"sizes": (4096,), "dtypes": ("float32",), "layouts": ("dense",), "seconds": 0.002}
    return run.Settings(pairs=pairs, **{**wanted, **more})
