"""Tensors of ours in the hands of C code, which calls their deleters when and where it likes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from support import capsules

import tensorferry as ferry

libc = ctypes.CDLL(None)


class Toy:
    """The tensors of a framework that only keeps what it is given."""


_parcels: list[Any] = []
ferry.register_framework("toy", types=[Toy], read=None, write=_parcels.append, alignment=1)


def held(source: Any = None, **options: Any) -> tuple[int, int]:
    """Gives a tensor to C: the address of its deleter, and the argument of that."""
    if source is None:
        source = np.arange(1000, dtype=np.float32)
    ferry.to(source, "toy", **options)
    return capsules.taken(_parcels.pop().__dlpack__(max_version=(1, 0)))
