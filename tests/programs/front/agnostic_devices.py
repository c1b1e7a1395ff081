"""Calls a function of `@ferry.agnostic` with JAX arrays on two CPU devices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from support.errors import raised

import tensorferry as ferry


@ferry.agnostic
def add(xp: Any, x: Any, y: Any) -> Any:
    """The sum of two tensors, which may be in containers."""
    return (x[0] if isinstance(x, list) else x) + (y["k"] if isinstance(y, dict) else y)


def refuse(x: Any, y: Any, fact: str) -> None:
    """The call is refused with this fact and a hint."""
    error = raised(ferry.InvalidArgumentError, add, x, y)
    assert f"add was called with a {fact}" in str(error), error
    assert "device=" in (error.hint or "")


one, two = (jax.device_put(np.ones(3, "f4"), device) for device in jax.devices())
refuse(one, two, "jax tensor on cpu and a jax tensor on cpu:1")
refuse(two, one, "jax tensor on cpu:1 and a jax tensor on cpu")
refuse([two], {"k": one}, "jax tensor on cpu:1 and a jax tensor on cpu")
# On one device, nothing is refused.
assert add([two], {"k": two}).device == two.device
# Host memory of another framework goes to the device of the first tensor.
assert add(two, np.ones(3, "f4")).device == two.device
# A device that is asked for is where the body computes; the result goes back.
seen: list[Any] = []


@ferry.agnostic(device="cpu:1")
def add_there(xp: Any, x: Any, y: Any) -> Any:
    """The sum, which is noted."""
    seen.append(x + y)
    return seen[0]


moved = add_there(one, two)
assert seen[0].device == two.device
assert moved.device == one.device
assert moved.tolist() == [2, 2, 2]
