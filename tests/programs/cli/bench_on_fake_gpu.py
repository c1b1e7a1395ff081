"""Measures transfers of NumPy and CuPy on the fake driver, and prints the result as JSON."""

from __future__ import annotations

import json
import types
from typing import Any

import cupy
from support.fake_gpu import on_gpu

from tensorferry._tools.bench import run

# The functions of CuPy that the benchmark compares with.
module: Any = cupy
module.asarray, module.asnumpy = on_gpu, lambda x: x.get()
module.cuda.runtime = types.SimpleNamespace(getDeviceCount=lambda: 1)
settings = run.Settings(
    sizes=(4096, 4 << 20),
    dtypes=("float32",),
    layouts=("dense",),
    seconds=0.002,
    pairs=(("numpy", "cupy"), ("cupy", "numpy")),
    device="all",
)
print(json.dumps(run.run(settings)))
