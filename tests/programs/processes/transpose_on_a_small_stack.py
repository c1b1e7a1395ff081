"""Transposes on a thread whose stack has 128 KiB; prints whether the result is right."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import tensorferry as ferry

x = np.arange(1301 * 1303, dtype=np.float32).reshape(1301, 1303)
results: list[Any] = []
threading.stack_size(128 << 10)
thread = threading.Thread(target=lambda: results.append(ferry.to(x.T, "numpy", copy=True)))
thread.start()
thread.join()
print((results[0] == x.T).all())
