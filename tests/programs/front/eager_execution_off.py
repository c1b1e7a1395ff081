"""Binds and takes tensors with TensorFlow's eager execution off from the start."""

from __future__ import annotations

import torch

# TensorFlow is imported after PyTorch: the other order ends the process.
# isort: split
import tensorflow as tf

from tensorferry import tf1

tf.compat.v1.disable_eager_execution()
inlet = tf1.inlet((3,), "float32")
outlet = tf1.outlet(inlet.tensor * 3, "torch")
with tf.compat.v1.Session() as session:
    inlet.bind(torch.arange(3.0))
    session.run(outlet.op)
    print(outlet.take().tolist())
