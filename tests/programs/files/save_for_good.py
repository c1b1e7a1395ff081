"""Saves an array to the path of the argument again and again, and says so, until it is killed."""

from __future__ import annotations

import sys

import numpy as np

import tensorferry as ferry

x = np.full(4 << 20, 2, np.float32)
while True:
    print("saving", flush=True)
    ferry.save(sys.argv[1], x)
