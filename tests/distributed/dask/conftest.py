"""Tests of `ferry.dask` with a real cluster of two worker processes, one for all tests of a run.

All frameworks are imported in every process, in an order that
works, before the first tensor arrives there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support.subprocesses import QUIET, import_frameworks, program_environment

# Larger frames are split, so that small tensors travel in several. distributed reads the variable
# when it is imported.
SHARD_BYTES = 1 << 20

os.environ.update({name: value for name, value in QUIET.items() if name != "PYTHONWARNINGS"})
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["DASK_DISTRIBUTED__COMM__SHARD"] = str(SHARD_BYTES)

with warnings.catch_warnings():
    # What a framework says while it is imported is about itself.
    warnings.simplefilter("ignore")
    import_frameworks("numpy", "paddle", "torch", "jax", "tensorflow")

from distributed import Client, LocalCluster  # noqa: E402

import tensorferry as ferry  # noqa: E402

WORKER_MEMORY = "4GiB"


class Cluster(NamedTuple):
    """A client and the addresses of its two workers."""

    client: Client
    first: str
    second: str

    def put(self, x: Any, worker: str | None = None, *, direct: bool = False) -> Any:
        """Sends a value to a worker, through the scheduler or directly."""
        (future,) = self.client.scatter(
            [x], workers=[worker or self.first], hash=False, direct=direct
        )
        return future

    def call(self, function: Any, *arguments: Any, worker: str | None = None) -> Any:
        """Calls a function in a worker, to which what the arguments refer to is brought."""
        workers = [worker or self.second]
        return self.client.submit(function, *arguments, workers=workers, pure=False)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two workers in which tests/ can be imported."""
    with pytest.MonkeyPatch.context() as patch:
        # Workers inherit the variables.
        patch.setenv("PYTHONPATH", program_environment()["PYTHONPATH"])
        patch.setenv("PYTHONWARNINGS", "ignore")
        local = LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=WORKER_MEMORY,
        )
    with local, Client(local) as client:
        client.register_plugin(ferry.dask.TensorPlugin())
        # Both workers import the frameworks at the same time.
        client.run(import_frameworks, "numpy", "paddle", "torch", "jax", "tensorflow")
        yield Cluster(client, *sorted(client.scheduler_info()["workers"]))
