"""Publishes for the first time while as many descriptors are free as the argument says."""

from __future__ import annotations

import contextlib
import os
import resource
import sys

import numpy as np

import tensorferry as ferry

resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
full: list[int] = []
with contextlib.suppress(OSError):
    while True:
        full.append(os.open("/dev/null", os.O_RDONLY))
for _ in range(int(sys.argv[1])):
    os.close(full.pop())
# Where too few are free, it is told so.
with contextlib.suppress(OSError):
    ferry.publish(np.ones(3))
