"""Converts JAX arrays that are sharded over two CPU devices: they are gathered."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from support.refusals import refused

import tensorferry as ferry

devices = jax.devices()
assert len(devices) == 2, devices
want = np.arange(24, dtype=np.float32).reshape(4, 6)
mesh = Mesh(np.array(devices), ("a",))
for spec in (PartitionSpec("a"), PartitionSpec(None, "a"), PartitionSpec()):
    x = jax.device_put(want, NamedSharding(mesh, spec))
    assert len(x.sharding.device_set) == 2
    got = ferry.to(x, "numpy")
    assert got.dtype == np.float32
    assert (got == want).all(), (spec, got)
    refused(
        ferry.CopyRequiredError, BufferError, partial(ferry.to, x, framework="numpy", copy=False)
    )
    plan = ferry.plan(x, "numpy")
    assert not plan.shares, plan
    assert "several devices" in str(plan), plan
    assert (ferry.to({"x": x}, "numpy", dtype="float64")["x"] == want).all()
# One device, and not the first: its memory is shared.
x = jax.device_put(want, devices[1])
got = ferry.to(x, "numpy")
assert (got == want).all()
assert ferry.plan(x, "numpy").shares
sharded = jax.device_put(want, NamedSharding(mesh, PartitionSpec("a")))
sharded.delete()
refused(ferry.NotATensorError, TypeError, lambda: ferry.to(sharded, "numpy"))
