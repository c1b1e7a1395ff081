"""A GPU tensor enters a TensorFlow 1.x graph and leaves it without leaving the GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry

pytestmark = pytest.mark.skipif("tensorflow" not in GPU_FRAMEWORKS, reason="TensorFlow is not here")
SIZE = 1 << 20


@pytest.mark.parametrize("target", ["torch", "cupy"])
@pytest.mark.parametrize("source", ["torch", "cupy", "jax"])
def test_in_and_out(source, target):
    import tensorflow as tf

    from tensorferry import tf1

    if source not in GPU_FRAMEWORKS or target not in GPU_FRAMEWORKS:
        pytest.skip("not here")
    array = np.random.default_rng(5).standard_normal(SIZE).astype(np.float32)
    x = GPU_FRAMEWORKS[source].make(array)
    v1 = tf.compat.v1
    with v1.Graph().as_default():
        inlet = tf1.inlet((None,), "float32")
        weight = v1.get_variable("w", initializer=np.float32(2))
        outlet = tf1.outlet(inlet.tensor * weight + 1, target)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                inlet.bind(x)
                session.run(outlet.op)
                with ferry.trace() as trips:
                    result = outlet.take()
                assert GPU_FRAMEWORKS[target].on_gpu(result)
                np.testing.assert_array_equal(GPU_FRAMEWORKS[target].host(result), array * 2 + 1)
                assert [trip.plan.action for trip in trips] == ["share"]
    assert ferry.plan(x, "tensorflow").action == "share"


def test_int32_goes_through_the_host():
    import tensorflow as tf

    from tensorferry import tf1

    v1 = tf.compat.v1
    with v1.Graph().as_default():
        inlet = tf1.inlet((3,), "int32")
        outlet = tf1.outlet(inlet.tensor + 1, "torch")
        with v1.Session() as session:
            inlet.bind(torch.tensor([1, 2, 3], dtype=torch.int32, device="cuda"))
            session.run(outlet.op)
            assert outlet.take().tolist() == [2, 3, 4]


def test_work_that_is_queued_on_a_side_stream_is_seen():
    import tensorflow as tf

    from tensorferry import tf1

    v1 = tf.compat.v1
    with v1.Graph().as_default():
        inlet = tf1.inlet((SIZE,), "float32")
        outlet = tf1.outlet(inlet.tensor + 1, "torch")
        with v1.Session() as session:
            for number in range(1, 6):
                with torch.cuda.stream(torch.cuda.Stream()):
                    x = torch.zeros(SIZE, device="cuda")
                    torch.cuda._sleep(20_000_000)
                    x.add_(number)
                    inlet.bind(x)
                    session.run(outlet.op)
                    result = outlet.take()
                    assert float(result.sum()) == SIZE * (number + 1)
