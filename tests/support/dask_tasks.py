"""What runs in workers of Dask: a look at tensors without tensorferry, and changes to them.

Test modules cannot be imported in a worker, which is given the folder tests/ instead.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from support.dtypes import NAMED, significant
from support.introspect import INSPECTORS, TYPES

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "paddle")

# The framework, the type, the shape and the bytes of a tensor in row-major order.
Seen = tuple[str, str, tuple[int, ...], bytes]


@dataclass
class Batch:
    """Tensors inside an object, which distributed pickles as a whole."""

    inputs: Any
    labels: Any


def see(x: Any) -> Seen:
    """What a tensor is, by the functions of its own framework."""
    (framework,) = (name for name, kind in TYPES.items() if kind and isinstance(x, kind))
    look = INSPECTORS[framework]
    dtype = look.dtype(x)
    return framework, dtype, tuple(look.shape(x)), significant(NAMED[dtype], look.values(x))


def see_all(tensors: dict[str, Any]) -> dict[str, Seen]:
    return {name: see(x) for name, x in tensors.items()}


def see_and_return(tensors: dict[str, Any]) -> tuple[dict[str, Seen], dict[str, Any], int]:
    """What arrived, the tensors themselves on their way back, and the process."""
    return see_all(tensors), tensors, os.getpid()


def see_batch(batch: Batch) -> tuple[Seen, Seen]:
    return see(batch.inputs), see(batch.labels)


def increment(x: Any) -> Seen:
    """Adds one to every element in place, and returns what the tensor is then."""
    x += 1
    return see(x)


def same(x: Any) -> Any:
    return x


def is_tied(tensors: dict[str, Any]) -> bool:
    """Whether a write to one of two tensors changes the other."""
    first, second = tensors.values()
    first.zero_()
    return bool((second == 0).all())


def type_name(x: Any) -> str:
    return f"{type(x).__module__}.{type(x).__qualname__}"


def random_values(size: int, dtype: str = "float32") -> np.ndarray:
    """As many bytes of one random stream."""
    raw = np.random.default_rng(7).integers(0, 256, size, np.uint8)
    return raw.view(dtype)


def evict_all(dask_worker: Any) -> int:
    """Spills everything that a worker holds to its disk, and returns how many keys lie there."""
    while dask_worker.data.fast:
        if dask_worker.data.evict() < 0:
            raise AssertionError("a key could not be spilled")
    return len(dask_worker.data.slow)


def managed_bytes(key: str, dask_worker: Any) -> int | None:
    """The size that a worker counts for a key."""
    task = dask_worker.state.tasks.get(key)
    return None if task is None else task.nbytes
