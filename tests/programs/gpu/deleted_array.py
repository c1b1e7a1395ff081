"""Deletes a JAX array on the GPU that another framework shares. The argument is the framework.

Where that is not survived, JAX ends the process.
"""

from __future__ import annotations

import sys

# PyTorch comes first: the order is one in which the frameworks live together.
import torch  # noqa: F401

# isort: split
import jax.numpy as jnp

import tensorferry as ferry

x = jnp.arange(1000.0)
x.block_until_ready()
y = ferry.to(x, sys.argv[1])
x.delete()
assert x.is_deleted()
if y is not x:
    assert float(y.sum()) == 499500.0
