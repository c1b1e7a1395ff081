"""Booleans in GPU memory, on the fake driver, are exported as they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from support.arrow_device import inspect_export
from support.fake_gpu import on_gpu

from tensorferry import arrow

x = on_gpu(np.array([True, False, True]))
exported = arrow.export(x)
assert pa.field(exported).type == pa.bool8(), pa.field(exported)
assert inspect_export(exported).array.buffers[1] == x.data.ptr
assert exported.plan.shares, exported.plan
