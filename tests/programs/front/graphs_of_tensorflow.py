"""Uses TensorFlow's graphs in a fresh process, also as its first use."""

from __future__ import annotations

import threading

import numpy as np
import tensorflow as tf
from support.cases import case, main

import tensorferry as ferry
from tensorferry import tf1


def compute_on_a_missing_gpu() -> None:
    """Prints 2.0. TensorFlow uses another device where this one is missing."""
    with tf.device("GPU:5"):
        print(float(tf.constant(1.0) + 1))


@case
def first_use_in_a_function() -> None:
    """The first use of TensorFlow is a conversion inside `tf.function`."""
    tf.function(lambda: ferry.to(np.arange(3.0), "tensorflow"))()
    compute_on_a_missing_gpu()


@case
def first_use_in_a_graph() -> None:
    """The first use of TensorFlow is an inlet in a graph."""
    with tf.Graph().as_default():
        tf1.inlet((3,), "float32").bind(np.arange(3.0, dtype="float32"))
    compute_on_a_missing_gpu()


@case
def eager_execution_disabled_after_use() -> None:
    """Graphs in threads, and eager execution that is turned off, are noticed at the next call."""
    x = np.ones(16, "f4")
    assert ferry.to(x, "tensorflow").shape == (16,)
    found: list[bool] = []

    def refuses() -> bool:
        try:
            ferry.to(x, "tensorflow")
        except ferry.NotATensorError as error:
            return "tf1.inlet" in str(error)
        return False

    def inside() -> None:
        assert ferry.to(x, "tensorflow").shape == (16,)
        with tf.Graph().as_default():
            found.append(refuses())
        assert ferry.to(x, "tensorflow").shape == (16,)

    threads = [threading.Thread(target=inside) for _ in range(4)]
    for thread in threads:
        thread.start()
        thread.join()
    assert found == [True] * 4
    tf.compat.v1.disable_eager_execution()
    assert refuses()


if __name__ == "__main__":
    main()
