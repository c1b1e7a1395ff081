"""Tensors through joblib's worker processes (loky) and through cloudpickle.

`ferry.pickling.enable()` in the parent is for what it sends. A worker needs tensorferry to read it,
and calls `enable` itself, as an initializer of joblib, for what it returns.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from support.subprocesses import QUIET, import_frameworks, program_environment

os.environ.update({name: value for name, value in QUIET.items() if name != "PYTHONWARNINGS"})
import_frameworks("numpy", "paddle", "torch", "jax", "tensorflow")

import cloudpickle  # noqa: E402
import joblib  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from support import dask_tasks  # noqa: E402
from support.dask_tasks import FRAMEWORKS, Batch  # noqa: E402

import tensorferry as ferry  # noqa: E402

VALUES = np.arange(12).reshape(3, 4)
STREAM_OF_OURS = b"tensorferry.pickling"


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    ferry.pickling.enable()
    yield
    ferry.pickling.disable()


@pytest.fixture(scope="module")
def parallel() -> Iterator[joblib.Parallel]:
    """Two worker processes, in which tensors are pickled by tensorferry too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", program_environment()["PYTHONPATH"])
        patch.setenv("PYTHONWARNINGS", "ignore")
        with (
            joblib.parallel_config("loky", initializer=ferry.pickling.enable),
            joblib.Parallel(n_jobs=2) as parallel,
        ):
            yield parallel
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def stream_of(x: Any) -> bytes:
    """What joblib in this process sends for an object."""
    from joblib.externals.loky.backend import reduction

    return bytes(reduction.dumps(x))


def tensor(framework: str, dtype: str) -> Any:
    return ferry.to(VALUES.astype(getattr(ml_dtypes, dtype, dtype)), framework, copy=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_tensors_reach_workers_of_joblib_and_come_back(
    parallel: joblib.Parallel, framework: str, dtype: str
) -> None:
    x = tensor(framework, dtype)
    expected = dask_tasks.see(x)
    assert STREAM_OF_OURS in stream_of(x)
    ((seen, back, process),) = parallel([joblib.delayed(dask_tasks.see_and_return)({"x": x})])
    assert process != os.getpid()
    assert seen == {"x": expected}
    assert dask_tasks.see(back["x"]) == expected


def test_workers_of_joblib_pickle_by_tensorferry(parallel: joblib.Parallel) -> None:
    (stream,) = parallel([joblib.delayed(stream_of)(tensor("torch", "bfloat16"))])
    assert STREAM_OF_OURS in stream


def test_tied_weights_stay_tied_in_a_worker(parallel: joblib.Parallel) -> None:
    weight = torch.ones(3)
    state = {"a": weight, "b": weight.view(3)}
    assert parallel([joblib.delayed(dask_tasks.is_tied)(state)]) == [True]
    assert torch.equal(weight, torch.ones(3))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_cloudpickle_sends_tensors_out_of_band(framework: str) -> None:
    x = tensor(framework, "bfloat16")
    buffers: list[pickle.PickleBuffer] = []

    class Local:
        batch = Batch(x, [x])

    data = cloudpickle.dumps(Local, protocol=5, buffer_callback=buffers.append)
    assert [buffer.raw().nbytes for buffer in buffers] == [24]
    back = pickle.loads(data, buffers=[bytearray(buffer.raw()) for buffer in buffers])
    assert dask_tasks.see(back.batch.inputs) == dask_tasks.see(x)


def test_cloudpickle_works_without_buffers_too() -> None:
    x = tensor("torch", "bfloat16")
    assert torch.equal(pickle.loads(cloudpickle.dumps(lambda: x))(), x)
