"""Tests of `ferry.ray` with a real cluster of two CPUs, one for all tests of a run.

They have an environment of their own (`make test-distributed`). `--quick` runs each test function,
each framework and each layout once. A worker imports the frameworks whose tensors it gets, and the
tests give each framework workers of its own: TensorFlow before Paddle would end the process.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Iterator

import pytest
from support import hang_guard
from support.gpu_selection import split_quick
from support.subprocesses import QUIET, import_frameworks, program_environment

os.environ.update({name: value for name, value in QUIET.items() if name != "PYTHONWARNINGS"})

with warnings.catch_warnings():
    # What a framework says while it is imported is about itself.
    warnings.simplefilter("ignore")
    import_frameworks("numpy", "paddle", "torch", "jax", "tensorflow")

import ray  # noqa: E402

import tensorferry as ferry  # noqa: E402

OBJECT_STORE_BYTES = 1 << 30


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_guard, "hang_guard")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="each test and each value of a parameter once"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        items[:], left_out = split_quick(items)
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A cluster in whose workers tests/ can be imported and JAX has 64-bit types."""
    # Ray would write a token into the home directory.
    os.environ.update(
        RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0"
    )
    variables = {"PYTHONPATH": program_environment()["PYTHONPATH"], "JAX_ENABLE_X64": "1"}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        runtime_env=ferry.ray.runtime_env(env_vars=variables),
    )
    yield
    ray.shutdown()
