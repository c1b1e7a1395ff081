"""Inspects and converts a file where no framework but NumPy can be imported.

The arguments are the file and the file to write.
"""

from __future__ import annotations

import sys

for name in ("torch", "jax", "tensorflow", "paddle", "mlx", "cupy", "scipy"):
    sys.modules[name] = None  # type: ignore[assignment]

from tensorferry._tools import cli  # noqa: E402

source, target = sys.argv[1:]
assert cli.main(["inspect", source]) == 0
assert cli.main(["convert", source, target]) == 0
