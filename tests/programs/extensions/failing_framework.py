"""Wraps memory for a framework that fails, at different times."""

from __future__ import annotations

import gc

import numpy as np
from support.c_table import api, take

import tensorferry as ferry


class Tensors:
    """The tensors of a framework that fails."""


kept: list[np.ndarray] = []


def fail_early(_exported: ferry.ExportedTensor) -> Tensors:
    raise RuntimeError("early")


def fail_late(exported: ferry.ExportedTensor) -> Tensors:
    """It has a view of the memory when it fails."""
    kept.append(np.from_dlpack(exported))
    raise RuntimeError("late")


for name, write in (("early", fail_early), ("late", fail_late)):
    kind = type(name, (Tensors,), {})
    ferry.register_framework(name, types=[kind], read=None, write=write, alignment=1)
    source = np.arange(4.0)
    taken = take(source)
    try:
        api.wrap(taken.address, name)
    except Exception as error:
        assert name in str(error), error
    else:
        raise AssertionError("no error")
    kept.clear()
    gc.collect()
    ferry.to(np.ones(1), "torch")  # drops what was deferred
    # The extension still has it.
    assert taken.array(source.dtype).tolist() == [0, 1, 2, 3]
    taken.release()
