"""TensorFlow's namespace inside `tf.function`, with sizes that the graph does not know."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support.strict_namespace import values, xp

import tensorferry as ferry

X = values("float32", (3, 4))

CALLS = {
    "add": lambda x: xp.add(x, 2),
    "floor_divide": lambda x: xp.floor_divide(xp.astype(x, xp.int32), 0),
    "where": lambda x: xp.where(x > 0, x, 0.0),
    "asarray": lambda x: xp.add(x, xp.asarray(np.ones(4, np.float32))),
    "asarray of a list": lambda x: xp.multiply(x, xp.asarray([1.0, 2, 3, 4])),
    "zeros_like": lambda x: xp.zeros_like(x),
    "triu": lambda x: xp.triu(x),
    "meshgrid": lambda x: xp.meshgrid(x[0], x[:, 0])[0],
    "sum": lambda x: xp.sum(x, axis=(0, 1)),
    "var": lambda x: xp.var(x, axis=0, correction=1),
    "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "diff": lambda x: xp.diff(x, axis=0),
    "concat": lambda x: xp.concat([x, x], axis=1),
    "flip": lambda x: xp.flip(x),
    "roll": lambda x: xp.roll(x, 1),
    "repeat": lambda x: xp.repeat(x, 2, axis=0),
    "tile": lambda x: xp.tile(x, (2, 1, 2)),
    "reshape": lambda x: xp.reshape(x, (-1,)),
    "broadcast_arrays": lambda x: xp.broadcast_arrays(x, x[0])[1],
    "take": lambda x: xp.take(x, xp.asarray([0, -1]), axis=1),
    "take_along_axis": lambda x: xp.take_along_axis(x, xp.argsort(x, axis=0), axis=0),
    "nonzero": lambda x: xp.nonzero(x > 0)[1],
    "sort": lambda x: xp.sort(x, axis=0, descending=True),
    "argmax": lambda x: xp.argmax(x, axis=1),
    "searchsorted": lambda x: xp.searchsorted(xp.sort(x[0]), x),
    "unique_all": lambda x: xp.unique_all(xp.round(x)).inverse_indices,
    "isin": lambda x: xp.isin(x, x[0]),
    "matmul": lambda x: xp.matmul(x, xp.matrix_transpose(x)),
    "tensordot": lambda x: xp.tensordot(x, x, axes=((1,), (1,))),
    "vecdot": lambda x: xp.vecdot(x, x),
    "svd": lambda x: xp.linalg.svd(x, full_matrices=False).S,
    "pinv": lambda x: xp.linalg.pinv(x),
    "solve": lambda x: xp.linalg.solve(x @ xp.matrix_transpose(x), x),
    "diagonal": lambda x: xp.linalg.diagonal(x, offset=1),
    "vector_norm": lambda x: xp.linalg.vector_norm(x, axis=0),
    "matrix_power": lambda x: xp.linalg.matrix_power(x @ xp.matrix_transpose(x), 2),
    "fft": lambda x: xp.fft.fft(x, axis=0),
    "irfft": lambda x: xp.fft.irfft(xp.fft.rfft(x)),
    "fftshift": lambda x: xp.fft.fftshift(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_in_a_graph(name):
    call = CALLS[name]
    signature = [tf.TensorSpec([None, None], tf.float32)]
    got = tf.function(call, input_signature=signature)(tf.constant(X))
    want = call(tf.constant(X))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


def test_an_unknown_rank_is_refused():
    signature = [tf.TensorSpec(None, tf.float32)]
    # AutoGraph would raise an error of its own, with the words of ours.
    function = tf.function(lambda x: xp.sum(x, axis=-1), signature, autograph=False)
    with pytest.raises(ferry.InvalidArgumentError, match="how many dimensions"):
        function(tf.constant(X))


def test_the_namespace_is_found_in_a_graph():
    @tf.function
    def function(x):
        assert ferry.array_namespace(x) is xp
        return ferry.array_namespace(x).exp(x)

    assert np.allclose(function(tf.constant(X)).numpy(), np.exp(X))
