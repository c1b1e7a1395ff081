"""`device=` takes a sharding of JAX. Also what else of feed needs several devices.

The process with four CPU devices is a child, which ends in the middle of epochs of tf.data and JAX.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from support import subprocesses
from support.cases import names_of_cases
from support.refusals import fact_and_hint

import tensorferry as ferry

CASES = names_of_cases(Path(__file__).parent.parent / "support" / "shardings.py")


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What became of each case."""
    told = subprocesses.run_program(
        "feeding/several_devices.py",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    return json.loads(told)


@pytest.mark.parametrize("case", CASES)
def test_four_cpu_devices(found: dict[str, str], case: str) -> None:
    assert found[case] == "passed", found[case]


def one_device() -> list[object]:
    mesh = Mesh(np.array(jax.devices("cpu")[:1]), ("a",))
    return [
        SingleDeviceSharding(jax.devices("cpu")[0]),
        NamedSharding(mesh, PartitionSpec("a")),
        NamedSharding(mesh, PartitionSpec()),
    ]


@pytest.mark.parametrize("sharding", one_device(), ids=repr)
def test_one_device(sharding: jax.sharding.Sharding) -> None:
    x = np.arange(6, dtype=np.float32)
    y = ferry.to(x, "jax", device=sharding)
    assert y.sharding == jax.device_put(x, sharding).sharding
    np.testing.assert_array_equal(np.asarray(y), x)
    assert ferry.to(y, "jax", device=sharding) is y


@pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow", "paddle", "mlx"])
def test_a_sharding_is_for_jax(framework: str) -> None:
    for sharding in one_device():
        with pytest.raises(ferry.InvalidArgumentError, match="sharding") as caught:
            ferry.to(np.arange(3.0), framework, device=sharding)
        _, hint = fact_and_hint(caught.value)
        assert '"jax"' in hint
