"""Tests of `ferry.ray` with a real cluster of two CPUs, one for all tests of a run.

A worker imports the frameworks whose tensors it gets, and the
tests give each framework workers of its own: TensorFlow before Paddle would end the process.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import pytest
from support.ray_tasks import cluster_settings
from support.subprocesses import QUIET, import_frameworks, program_environment

os.environ.update({name: value for name, value in QUIET.items() if name != "PYTHONWARNINGS"})
# Ray reads them when it is imported.
os.environ.update(cluster_settings())

with warnings.catch_warnings():
    # What a framework says while it is imported is about itself.
    warnings.simplefilter("ignore")
    import_frameworks("numpy", "paddle", "torch", "jax", "tensorflow")

import ray

import tensorferry as ferry

OBJECT_STORE_BYTES = 1 << 30


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A cluster in whose workers tests/ can be imported and JAX has 64-bit types."""
    variables = {"PYTHONPATH": program_environment()["PYTHONPATH"], "JAX_ENABLE_X64": "1"}
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        runtime_env=ferry.ray.runtime_env(env_vars=variables),
    )
    yield
    ray.shutdown()
