"""Decorated functions on a GPU: results go where the first tensor was, not by way of the host."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gpu.gpu_frameworks import GPU_FRAMEWORKS

import tensorferry as ferry

ARRAY = np.arange(1, 1025, dtype=np.float32)


@pytest.mark.parametrize(("caller", "body"), list(itertools.permutations(GPU_FRAMEWORKS, 2)))
def test_every_pair_stays_on_the_gpu(caller, body):
    function = ferry.via(body)(lambda x, y: {"y": y["k"], "x": x})
    x, y = GPU_FRAMEWORKS[caller].make(ARRAY), GPU_FRAMEWORKS[caller].make(ARRAY + 1)
    with ferry.trace() as trips:
        result = function(x, {"k": y})
    assert all(trip.shares for trip in trips), trips
    assert GPU_FRAMEWORKS[caller].on_gpu(result["x"])
    np.testing.assert_array_equal(GPU_FRAMEWORKS[caller].host(result["x"]), ARRAY)
    np.testing.assert_array_equal(GPU_FRAMEWORKS[caller].host(result["y"]), ARRAY + 1)


@pytest.mark.skipif("cupy" not in GPU_FRAMEWORKS, reason="CuPy is not here")
def test_results_go_back_to_the_host():
    double = ferry.via("cupy")(lambda x: x * 2)
    for x in (ARRAY, torch.from_numpy(ARRAY)):
        result = double(x)
        assert type(result) is type(x)
        np.testing.assert_array_equal(np.asarray(result), ARRAY * 2)
    moved = ferry.via("torch", device="cuda", returns="keep")(lambda x: x)(ARRAY)
    assert moved.is_cuda
    home = ferry.via("torch", device="cuda")(lambda x: x * 2)(torch.from_numpy(ARRAY))
    assert home.device.type == "cpu"


def test_agnostic_refuses_two_devices():
    function = ferry.agnostic(lambda xp, x, y: x + y)
    gpu = torch.from_numpy(ARRAY).cuda()
    for pair in ((ARRAY, gpu), (gpu, ARRAY), (gpu, gpu.cpu())):
        with pytest.raises(ferry.InvalidArgumentError, match=r"cuda:0.*\nhint: ") as caught:
            function(*pair)
        assert "cpu" in str(caught.value)
    moved = ferry.agnostic(device="cuda")(lambda xp, x, y: x + y)(gpu.cpu(), gpu)
    assert moved.device.type == "cpu", "results go back to where the first tensor was"


@pytest.mark.skipif("jax" not in GPU_FRAMEWORKS, reason="JAX has no GPU here")
def test_gradients_on_the_gpu():
    import jax
    import jax.numpy as jnp

    x = torch.from_numpy(ARRAY).cuda().requires_grad_()
    with ferry.trace() as trips:
        ferry.via("jax", grad=True)(lambda x: jnp.sin(x).sum())(x).backward()
    assert x.grad.is_cuda
    np.testing.assert_allclose(x.grad.cpu(), np.cos(ARRAY), atol=1e-5)
    assert not any(trip.plan.device == "cpu" for trip in trips)
    slope = jax.grad(lambda x: ferry.via("torch", grad=True)(torch.sin)(x).sum())
    y = GPU_FRAMEWORKS["jax"].make(ARRAY)
    np.testing.assert_allclose(np.asarray(slope(y)), np.cos(ARRAY), atol=1e-5)
    np.testing.assert_allclose(np.asarray(jax.jit(slope)(y)), np.cos(ARRAY), atol=1e-5)
