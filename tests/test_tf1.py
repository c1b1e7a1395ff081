"""TensorFlow 1.x graphs take tensors of any framework, and give them."""

from __future__ import annotations

import gc

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from support import subprocesses
from support.refusals import refused

import tensorferry as ferry
from tensorferry import tf1

v1 = tf.compat.v1

MAKERS = {
    "numpy": lambda a: a,
    "torch": lambda a: torch.from_numpy(a),
    "jax": jnp.asarray,
    "list of bytes": lambda a: memoryview(a),
}


@pytest.mark.parametrize("make", MAKERS)
def test_a_tensor_goes_in_and_comes_out(make):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    with v1.Graph().as_default():
        inlet = tf1.inlet((None, 4), "float32")
        assert inlet.tensor.shape.as_list() == [None, 4]
        outlet = tf1.outlet(inlet.tensor * 2 + 1, "torch")
        with v1.Session() as session:
            for factor in (1, 3):
                inlet.bind(MAKERS[make](array * factor))
                session.run(outlet.op)
                result = outlet.take()
                assert isinstance(result, torch.Tensor)
                np.testing.assert_array_equal(result.numpy(), array * factor * 2 + 1)


def test_variables_and_several_inlets():
    with v1.Graph().as_default():
        weights = v1.get_variable("w", initializer=np.ones(3, np.float32))
        left, right = tf1.inlet((3,), tf.float32), tf1.inlet((3,), "int32")
        step = v1.assign_add(weights, left.tensor + tf.cast(right.tensor, tf.float32))
        outlet = tf1.outlet(step, "numpy")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            left.bind(torch.full((3,), 2.0))
            right.bind(np.array([1, 2, 3], np.int32))
            for turn in (1, 2):
                session.run(outlet.op)
                np.testing.assert_array_equal(outlet.take(), 1 + turn * np.array([3, 4, 5]))


def test_the_bound_tensor_is_kept_and_released():
    with v1.Graph().as_default():
        inlet = tf1.inlet((4,), "float32")
        total = tf.reduce_sum(inlet.tensor)
        with v1.Session() as session:
            inlet.bind(np.full(4, 7, np.float32))
            gc.collect()
            assert session.run(total) == 28
            inlet.bind(np.full(4, 1, np.float32))
            assert session.run(total) == 4


def test_wrong_tensors_are_refused_when_they_are_bound():
    with v1.Graph().as_default():
        inlet = tf1.inlet((2, None), "float32")
    error = refused(
        ferry.InvalidArgumentError, ValueError, lambda: inlet.bind(np.ones((3, 3), "f4"))
    )
    assert "shape" in str(error)
    error = refused(ferry.InvalidArgumentError, ValueError, lambda: inlet.bind(np.ones((2, 3))))
    assert "float64" in str(error)
    error = refused(
        ferry.InvalidArgumentError, ValueError, lambda: inlet.bind([np.ones((2, 3), "f4")])
    )
    assert "tree" in str(error)
    assert repr(inlet).startswith("<Inlet float32")


def test_nothing_bound_and_nothing_run():
    with v1.Graph().as_default():
        inlet = tf1.inlet((1,), "float32")
        outlet = tf1.outlet(inlet.tensor, "numpy")
        refused(ferry.InvalidArgumentError, ValueError, outlet.take)
        with v1.Session() as session, pytest.raises(tf.errors.OpError, match="no tensor was bound"):
            session.run(outlet.op)


def test_inside_a_graph_the_inlet_is_named():
    with v1.Graph().as_default():
        error = refused(
            ferry.NotATensorError, TypeError, lambda: ferry.to(np.ones(3), "tensorflow")
        )
    assert "tf1.inlet" in error.hint


def test_inside_a_function_a_tensor_is_captured():
    @tf.function
    def traced():
        return ferry.to(np.arange(3.0), "tensorflow") * 2

    assert traced().numpy().tolist() == [0, 2, 4]


@pytest.mark.parametrize("way", ["function", "graph"])
def test_first_used_inside_a_graph(way):
    """TensorFlow begins at its first use. Begun by us inside of a graph, it is as it would be."""
    done = subprocesses.attempt_program("front/graphs_of_tensorflow.py", f"first_use_in_a_{way}")
    assert done.stdout.strip() == "2.0", done.stderr


def test_with_eager_execution_off():
    # Old versions of TensorFlow say on stderr what they think of graphs.
    done = subprocesses.attempt_program("front/eager_execution_off.py")
    assert (done.returncode, done.stdout) == (0, "[0.0, 3.0, 6.0]\n"), done.stderr


def test_eager_execution_that_is_turned_off_later_is_noticed():
    """In threads too, each of which begins with a list of graphs of its own."""
    subprocesses.run_program("front/graphs_of_tensorflow.py", "eager_execution_disabled_after_use")
