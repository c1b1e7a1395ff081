"""Small clusters of one worker, each for one question that the argument names.

Frameworks are not imported before a tensor needs them, so that a worker starts in a second.
"""

from __future__ import annotations

import os
import sys
from typing import Any

PRELOAD = "DASK_DISTRIBUTED__{}__PRELOAD"


def is_registered() -> bool:
    """Whether this process sends tensors out of band."""
    from distributed.protocol.serialize import families

    return str(families["pickle"][0].__module__) == "tensorferry.dask"


def hide_tensorferry() -> None:
    """Makes this process one without tensorferry."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorferry"]:
        del sys.modules[name]
    sys.modules["tensorferry"] = None  # type: ignore[assignment]


def make_tensor() -> Any:
    import torch

    return torch.arange(5, dtype=torch.bfloat16)


def sum_tensor(x: Any) -> float:
    return float(x.sum())


def cluster() -> Any:
    from distributed import LocalCluster

    return LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")


def preload_workers() -> None:
    """The client of preloaded workers reads what they send, and is not changed."""
    from distributed import Client

    os.environ[PRELOAD.format("WORKER")] = "tensorferry.dask"
    import dask

    dask.config.refresh()
    with cluster() as local, Client(local) as client:
        assert list(client.run(is_registered).values()) == [True]
        assert not is_registered()
        assert client.submit(make_tensor).result().tolist() == [0, 1, 2, 3, 4]


def preload_all() -> None:
    from distributed import Client

    for process in ("WORKER", "CLIENT"):
        os.environ[PRELOAD.format(process)] = "tensorferry.dask"
    import dask

    dask.config.refresh()
    with cluster() as local, Client(local) as client:
        assert list(client.run(is_registered).values()) == [True]
        assert is_registered()
        x = client.scatter(make_tensor())
        assert client.submit(sum_tensor, x).result() == 10


def joining_worker() -> None:
    """A worker that joins after the registration has the plugin, and one that restarted."""
    from distributed import Client

    import tensorferry as ferry

    with cluster() as local, Client(local) as client:
        client.register_plugin(ferry.dask.TensorPlugin())
        local.scale(2)
        client.wait_for_workers(2)
        assert list(client.run(is_registered).values()) == [True, True]
        client.restart()
        assert list(client.run(is_registered).values()) == [True, True]


def worker_without_tensorferry() -> None:
    from distributed import Client

    import tensorferry as ferry

    with cluster() as local, Client(local) as client:
        client.run(hide_tensorferry)
        try:
            client.register_plugin(ferry.dask.TensorPlugin())
        except ModuleNotFoundError as error:
            print(error)
        else:
            raise AssertionError("registered without tensorferry")


QUESTIONS = {
    function.__name__: function
    for function in (preload_workers, preload_all, joining_worker, worker_without_tensorferry)
}

if __name__ == "__main__":
    QUESTIONS[sys.argv[1]]()
    print("answered")
