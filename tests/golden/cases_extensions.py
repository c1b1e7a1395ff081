"""Errors that the C table raises in the calls of extensions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from support.c_table import CUDA, C, F, api, borrow, release, take
from support.dtypes import FLOAT32, NAMED
from support.invalid_capsules import Producer

Case = Callable[[Path], object]


def taken(x: Any, **options: Any) -> Case:
    return lambda _: take(x, **options)


def read_only() -> np.ndarray:
    array = np.ones(3)
    array.flags.writeable = False
    return array


def borrowed(first: bool, second: bool) -> Case:
    def run(_: Path) -> object:
        array = np.ones(3)
        tensor = take(array, writable=True)
        held = borrow(array, tensor, exclusive=first)
        try:
            return borrow(array, tensor, exclusive=second)
        finally:
            release(held)

    return run


def wrapped(like: object, **options: Any) -> Case:
    import ctypes

    producer = Producer(**options)
    return lambda _: api.wrap(ctypes.addressof(producer.managed), like)


CASES: dict[str, Case] = {
    "take: another type": taken(np.ones(3), dtypes=[FLOAT32, NAMED["int32"]]),
    "take: another device": taken(torch.ones(3), device=(CUDA, 1)),
    "take: another rank": taken(np.ones((2, 3)), rank=1),
    "take: immutable": taken(jnp.ones(3), writable=True),
    "take: read-only": taken(read_only(), writable=True),
    "take: non-leaf": taken(torch.ones(3, requires_grad=True) * 2, writable=True),
    "take: overlap": taken(np.broadcast_to(np.ones(3), (2, 3)), writable=True),
    "take: overlap that can be written": taken(torch.ones(8).unfold(0, 4, 1), writable=True),
    "take: no copy": taken(np.ones((2, 3)).T, order=C, copy_allowed=False),
    "take: no copy of what is written": taken(np.ones((2, 3)), order=F, writable=True),
    "take: not a tensor": taken("text"),
    "take: short request": taken(np.ones(3), size=8),
    "take: invalid request": taken(np.ones(3), order=9),
    "wrap: NULL": lambda _: api.wrap(None, "numpy"),
    "wrap: like a number": wrapped(3),
    "wrap: another version": wrapped("numpy", version=(2, 0)),
    "borrow: writer after reader": borrowed(first=False, second=True),
    "borrow: reader after writer": borrowed(first=True, second=False),
    "release: unknown": lambda _: api.release(7),
}
