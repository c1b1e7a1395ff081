"""Errors of pickles: damaged descriptions, versions, frameworks and devices that are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tensorferry import pickling

Case = Callable[[Path], object]


def rebuild(*arguments: Any) -> Case:
    return lambda _: pickling._rebuild(*arguments)


def call(*arguments: Any) -> Case:
    return lambda _: pickling._rebuild(1, bytes(4), "float32", (1,))(*arguments)


def loads(x: Any, *arguments: Any, **options: Any) -> Case:
    return lambda _: pickling.loads(*pickling.dumps(x), *arguments, **options)


CASES: dict[str, Case] = {
    "version: unknown": rebuild(2),
    "payload: too few bytes": rebuild(1, b"abc", "float32", (1,)),
    "payload: gaps": rebuild(1, memoryview(bytes(8))[::2], "float32", (1,)),
    "payload: unknown type": rebuild(1, bytes(4), "float33", (1,)),
    "payload: type that is not text": rebuild(1, bytes(4), b"float32", (1,)),
    "payload: shape that is not a tuple": rebuild(1, bytes(4), "float32", [1]),
    "payload: length out of range": rebuild(1, bytes(4), "float32", (1 << 70,)),
    "payload: negative length": rebuild(1, bytes(4), "float32", (-1,)),
    "payload: overflow": rebuild(1, bytes(4), "float32", (1 << 62, 1 << 62)),
    "payload: no permutation": rebuild(1, bytes(4), "float32", (1, 1), (0, 0)),
    "payload: no buffer": rebuild(1, 5, "float32", (1,)),
    "payload: nothing": rebuild(1),
    "load: unknown framework in the stream": call("caffe"),
    "load: unknown device in the stream": call("torch", "tpu:0"),
    "load: device that is missing": call("torch", "cuda:7"),
    "load: unknown framework": loads(np.ones(1), "caffe"),
    "load: type that the framework lacks": loads(np.arange(3), "jax"),
    "load: writable for JAX": loads(np.ones(3, np.float32), "jax", writable=True),
    "options: left on another thread": lambda _: pickling.load_options().__exit__(),
}
