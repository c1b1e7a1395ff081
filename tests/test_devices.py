"""Every CPU device that a framework has is honoured, and every other one is refused with a hint.

JAX and TensorFlow can divide the host into several CPU devices, before they start; such processes
are children. Where a result is, its framework says, and not the library.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import mlx.core as mx
import numpy as np
import paddle
import pytest
import tensorflow as tf
import torch
from support import subprocesses
from support.cases import names_of_cases
from support.refusals import check_words

import tensorferry as ferry

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "paddle", "mlx")
ONE_CPU = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "paddle": "Paddle",
    "mlx": "MLX",
}
FIRST = {
    "cpu": "cpu",
    "cpu:0": "cpu:0",
    "CPU:0": "CPU:0",
    "/CPU:0": "/CPU:0",
    "torch": torch.device("cpu"),
    "torch with an index": torch.device("cpu", 0),
    "jax": jax.devices("cpu")[0],
    "tensorflow": tf.constant([1.0]).device,
    "tensorflow logical": tf.config.list_logical_devices("CPU")[0],
    "tensorflow spec": tf.DeviceSpec(device_type="CPU", device_index=0),
    "paddle": paddle.CPUPlace(),
    "mlx": mx.Device(mx.cpu, 0),
}
OTHERS = {
    "cpu:1": "cpu:1",
    "cpu:9": "cpu:9",
    "/device:CPU:1": "/device:CPU:1",
    "torch": torch.device("cpu", 1),
    "tensorflow spec": tf.DeviceSpec(device_type="CPU", device_index=1),
}

CASES = names_of_cases(Path(__file__).parent / "support" / "cpu_devices.py")


@pytest.fixture(scope="module", params=["", "all"], ids=["private functions", "public functions"])
def found(request):
    """What became of each case in a child with four CPU devices of JAX and three of TensorFlow."""
    told = subprocesses.run_program(
        "front/several_cpu_devices.py",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
        TENSORFERRY_DISABLE=request.param,
    )
    return json.loads(told)


@pytest.mark.parametrize("case", CASES)
def test_several_cpu_devices(found, case):
    assert found[case] == "passed", found[case]


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("device", FIRST)
def test_the_only_cpu_goes_by_many_names(target, device):
    x = torch.arange(6.0)
    y = ferry.to(x, target, device=FIRST[device])
    assert ferry.plan(x, target, device=FIRST[device]).device == "cpu"
    np.testing.assert_array_equal(ferry.to(y, "numpy"), x.numpy())


def started(x, framework, **options):
    return ferry.to_async(x, framework, **options).result()


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("verb", [ferry.to, ferry.plan, started])
@pytest.mark.parametrize("is_tree", [False, True], ids=["one", "tree"])
def test_another_cpu_is_refused(verb, is_tree, target, device):
    source = {"a": [np.arange(3.0)]} if is_tree else torch.arange(6.0)
    with pytest.raises(ferry.UnsupportedError) as caught:
        verb(source, target, device=OTHERS[device], dtype="float32")
    check_words(caught.value)
    index = 9 if "9" in device else 1
    fact = str(caught.value).partition("\n")[0]
    assert fact.startswith(("at ['a'][0]: " if is_tree else "") + ONE_CPU[target]), fact
    assert re.search(rf"\bcpu:{index}\b", fact), fact
    assert 'device="cpu"' in caught.value.hint


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_another_cpu_is_refused_for_what_is_there_already(framework):
    x = ferry.to(torch.arange(6.0), framework)
    with pytest.raises(ferry.UnsupportedError, match=rf"{ONE_CPU[framework]}.*\bcpu:1\b"):
        ferry.to(x, framework, device="cpu:1")


def test_another_cpu_is_refused_by_all_that_carries(tmp_path):
    x = np.arange(6, dtype=np.float32)
    ferry.save(tmp_path / "x.npy", x)
    ticket = ferry.publish(x)
    refused = pytest.raises(ferry.UnsupportedError, match=r"PyTorch.*\bcpu:1\b")
    with refused:
        ferry.load(tmp_path / "x.npy", "torch", device="cpu:1")
    with refused:
        ferry.attach(ticket, "torch", device="cpu:1")
    np.testing.assert_array_equal(ferry.attach(ticket, "torch", device="cpu").numpy(), x)
    with refused:
        ferry.empty_shared((2, 3), "float32", framework="torch", device="cpu:1")
    with refused:
        ferry.via("torch", device="cpu:1")(lambda t: t)(x)
    with pytest.raises(ferry.UnsupportedError, match=r"NumPy.*\bcpu:1\b"):
        ferry.agnostic(device="cpu:1")(lambda xp, a: a)(x)
    with pytest.raises(ferry.InvalidArgumentError, match=r"\bout\b.*\bcpu\b.*\bdevice=cpu:1\b"):
        ferry.to(x, "numpy", device="cpu:1", out=np.empty(6, np.float32))


def test_cupy_has_no_cpu():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    with pytest.raises(ferry.UnsupportedError, match="CuPy"):
        ferry.to(np.arange(3.0), "cupy", device="cpu:1")


@pytest.mark.parametrize("given", ["cpu:", "cpu:-1", "cpu:x", "cpu:99999999999"])
def test_what_names_no_device(given):
    with pytest.raises(ferry.InvalidArgumentError, match=re.escape(f'"{given}"')) as caught:
        ferry.to(np.arange(3.0), "jax", device=given)
    assert '"cpu"' in caught.value.hint
