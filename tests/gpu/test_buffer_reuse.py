"""No framework reuses the memory of a shared source: donation in JAX, TensorFlow's reuse."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS
from gpu.gpu_programs import run_program

import tensorferry as ferry

SIZE = 1 << 20


def sources() -> list[str]:
    return [name for name in ("torch", "cupy") if name in GPU_FRAMEWORKS]


def zeros(name: str):
    return GPU_FRAMEWORKS[name].make(np.zeros(SIZE, np.float32))


def untouched(name: str, x) -> bool:
    return not GPU_FRAMEWORKS[name].host(x).any()


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.skipif("jax" not in GPU_FRAMEWORKS, reason="JAX is not here")
class TestDonation:
    def add(self):
        import jax

        return jax.jit(lambda x: x + 1, donate_argnums=0)

    @pytest.mark.parametrize("source", sources())
    @pytest.mark.parametrize("size", [16, SIZE])
    def test_is_refused(self, source, size):
        x = GPU_FRAMEWORKS[source].make(np.zeros(size, np.float32))
        y = ferry.to(x, "jax")
        with pytest.raises(Exception, match="external reference"):
            self.add()(y)
        assert untouched(source, x)
        np.testing.assert_array_equal(np.asarray(y), 0)

    @pytest.mark.parametrize("source", sources())
    def test_is_refused_through_device_put(self, source):
        import jax

        x = zeros(source)
        y = ferry.to(x, "jax")
        z = jax.device_put(y, y.device)
        with pytest.raises(Exception, match="external reference"):
            self.add()(z)
        assert untouched(source, x)

    @pytest.mark.xfail(
        strict=True, raises=AssertionError, reason="documented: the sibling has no protection"
    )
    def test_through_device_put_after_the_original_is_gone(self):
        import jax

        x = zeros("torch")
        y = ferry.to(x, "jax")
        z = jax.device_put(y, y.device)
        del y
        gc.collect()
        self.add()(z).block_until_ready()
        assert untouched("torch", x)

    @pytest.mark.parametrize("source", sources())
    def test_of_a_copy_is_fine(self, source):
        x = zeros(source)
        y = self.add()(ferry.to(x, "jax", copy=True))
        np.testing.assert_array_equal(np.asarray(y), 1)
        assert untouched(source, x)

    def test_of_an_array_that_torch_shares_is_refused(self):
        import jax.numpy as jnp

        x = jnp.zeros(SIZE, jnp.float32)
        t = ferry.to(x, "torch")
        with pytest.raises(Exception, match="external reference"):
            self.add()(x)
        assert not t.any()

    @pytest.mark.one_case
    @pytest.mark.parametrize("target", ["torch", "cupy", "jax"])
    def test_deleting_a_shared_array_is_survived(self, target):
        """In a process of its own: where it is not, JAX ends the process."""
        run_program("gpu/deleted_array.py", target, XLA_PYTHON_CLIENT_PREALLOCATE="false")

    def test_a_copy_while_something_is_traced(self):
        import jax

        x = torch.arange(12.0, device="cuda").reshape(3, 4)
        y = jax.jit(lambda z: ferry.to(x.T, "jax", copy=True) + z)(1.0)
        np.testing.assert_array_equal(np.asarray(y), x.T.cpu().numpy() + 1)

    def test_protection_does_not_leak(self):
        x = torch.zeros(SIZE, device="cuda")
        torch.cuda.synchronize()
        del x
        gc.collect()
        before = torch.cuda.memory_allocated()
        for _ in range(50):
            ferry.to(torch.zeros(SIZE, device="cuda"), "jax").block_until_ready()
        gc.collect()
        assert torch.cuda.memory_allocated() <= before + 4 * SIZE


@pytest.mark.skipif("tensorflow" not in GPU_FRAMEWORKS, reason="TensorFlow is not here")
class TestTensorFlow:
    @pytest.mark.parametrize("source", sources())
    def test_a_copy_inside_a_function_and_a_graph(self, source):
        import tensorflow as tf

        x = GPU_FRAMEWORKS[source].make(np.arange(12, dtype=np.float32).reshape(3, 4)).T
        y = tf.function(lambda: ferry.to(x, "tensorflow") + 1)()
        np.testing.assert_array_equal(y.numpy(), np.arange(12).reshape(3, 4).T + 1)
        with tf.Graph().as_default() as graph:
            with pytest.raises(ferry.NotATensorError, match=r"tf1\.inlet"):
                ferry.to(x, "tensorflow")
            assert not graph.get_operations()

    @pytest.mark.parametrize("source", sources())
    def test_forwarding_variables_and_functions(self, source):
        import tensorflow as tf

        for work in (
            lambda y: tf.nn.relu(y + 1) + y,
            lambda y: tf.function(lambda v: tf.sqrt(v + 1) * 2)(y),
            lambda y: tf.Variable(y).assign_add(tf.ones_like(y)),
            lambda y: tf.Variable(tf.zeros_like(y)).assign(y).assign_add(tf.ones_like(y)),
            lambda y: tf.tensor_scatter_nd_update(y, [[0]], [5.0]),
            lambda y: tf.function(lambda v: v + 1, jit_compile=True)(y),
        ):
            x = zeros(source)
            work(ferry.to(x, "tensorflow"))
            tf.test.experimental.sync_devices()
            assert untouched(source, x)
