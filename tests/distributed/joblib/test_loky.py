"""Tensors through joblib's worker processes (loky) and through cloudpickle.

`ferry.pickling.enable()` in the parent is for what it sends. A worker needs tensorferry to read it,
and calls `enable` itself, as an initializer of joblib, for what it returns.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cloudpickle
import joblib
import ml_dtypes
import numpy as np
import pytest
from support import joblib_tasks
from support.joblib_tasks import stream_of
from support.ray_tasks import FRAMEWORKS, see, tied_pair
from support.subprocesses import QUIET, import_frameworks, program_environment

import tensorferry as ferry

os.environ.update({name: value for name, value in QUIET.items() if name != "PYTHONWARNINGS"})

VALUES = np.arange(12).reshape(3, 4)
STREAM_OF_OURS = b"tensorferry.pickling"


@pytest.fixture(scope="module", autouse=True)
def frameworks(request: pytest.FixtureRequest) -> None:
    """Imports the frameworks of the tests that run, in an order that works."""
    cases = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    import_frameworks("torch", *(case.params.get("framework", "torch") for case in cases))


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


def tensor(framework: str, dtype: str) -> Any:
    return ferry.to(VALUES.astype(getattr(ml_dtypes, dtype, dtype)), framework, copy=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_tensors_reach_workers_of_joblib_and_come_back(
    parallel: joblib.Parallel, framework: str, dtype: str
) -> None:
    x = tensor(framework, dtype)
    expected = see(x)
    assert STREAM_OF_OURS in stream_of(x)
    ((seen, back, process),) = parallel([joblib.delayed(joblib_tasks.see_and_return)({"x": x})])
    assert process != os.getpid()
    assert seen == {"x": expected}
    assert see(back["x"]) == expected


def test_workers_of_joblib_pickle_by_tensorferry(parallel: joblib.Parallel) -> None:
    (stream,) = parallel([joblib.delayed(stream_of)(tensor("torch", "bfloat16"))])
    assert STREAM_OF_OURS in stream


def test_tied_weights_stay_tied_in_a_worker(parallel: joblib.Parallel) -> None:
    import torch

    weight = torch.ones(3)
    ((is_tied, _),) = parallel([joblib.delayed(tied_pair)([weight, weight.view(3)])])
    assert is_tied
    assert torch.equal(weight, torch.ones(3))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_cloudpickle_sends_tensors_out_of_band(framework: str) -> None:
    x = tensor(framework, "bfloat16")
    buffers: list[pickle.PickleBuffer] = []

    class Local:
        batch = SimpleNamespace(inputs=x, nested=[x])

    data = cloudpickle.dumps(Local, protocol=5, buffer_callback=buffers.append)
    assert [buffer.raw().nbytes for buffer in buffers] == [24]
    back = pickle.loads(data, buffers=[bytearray(buffer.raw()) for buffer in buffers])
    assert see(back.batch.inputs) == see(x)


def test_cloudpickle_works_without_buffers_too() -> None:
    import torch

    x = tensor("torch", "bfloat16")
    assert torch.equal(pickle.loads(cloudpickle.dumps(lambda: x))(), x)
