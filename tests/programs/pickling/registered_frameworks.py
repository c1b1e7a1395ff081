"""A pickle of a tensor whose framework was registered from Python."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorferry as ferry
from tensorferry import pickling


class Holder:
    def __init__(self, array: Any) -> None:
        self.array = array


ferry.register_framework(
    "holder",
    types=[Holder],
    read=lambda holder: holder.array,
    write=lambda exported: Holder(np.from_dlpack(exported)),
)
data, buffers = pickling.dumps(Holder(np.arange(5.0)))
assert len(buffers) == 1
back = pickling.loads(data, buffers)
assert type(back) is Holder
assert back.array.tolist() == [0, 1, 2, 3, 4]
assert pickling.loads(data, buffers, "torch").tolist() == [0, 1, 2, 3, 4]
