"""Ends while compiled functions, graphs and datasets of JAX and TensorFlow hold shares."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import tensorflow as tf

import tensorferry as ferry

x = ferry.to(tf.range(64.0), "numpy", copy=True)
# Constants of compiled functions, and of graphs, live in caches of the frameworks.
j = ferry.to(x, "jax")
assert jax.jit(lambda a: a + j)(jnp.ones(64)).tolist() == (x + 1).tolist()
t = ferry.to(x, "tensorflow")
assert ferry.plan(x, "tensorflow").shares
assert ferry.plan(x, "jax").shares
function = tf.function(lambda a: a + t)
assert function(tf.ones(64)).numpy().tolist() == (x + 1).tolist()
table = tf.Variable(t)
data = iter(tf.data.Dataset.from_tensor_slices(t).repeat().prefetch(4))
assert float(next(data)) == 0
print("out")
