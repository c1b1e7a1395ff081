"""How the plugin gets into the processes of a cluster, and what it says where it cannot."""

from __future__ import annotations

import doctest
import inspect
import io
import sys
from typing import Any

import pytest
from support import subprocesses

import tensorferry as ferry

MOMENTS = (
    *("lookup_before", "import_after", "read_first", "torchvision_first"),
    *("twice", "pickle_first", "cupy_without_numba"),
)


@pytest.mark.one_case
@pytest.mark.parametrize("moment", MOMENTS)
def test_ours_wins_over_the_registration_of_distributed(moment: str) -> None:
    shown = subprocesses.run_program("distributed/dask_registration.py", moment)
    assert shown == "registered\n"


@pytest.mark.not_quick
@pytest.mark.parametrize("question", ["preload_workers", "preload_all", "joining_worker"])
def test_workers_have_the_plugin(question: str) -> None:
    done = subprocesses.attempt_program("distributed/dask_clusters.py", question)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answered\n"


@pytest.mark.not_quick
def test_a_worker_without_tensorferry_is_named_when_the_plugin_is_registered() -> None:
    done = subprocesses.attempt_program(
        "distributed/dask_clusters.py", "worker_without_tensorferry"
    )
    assert done.returncode == 0, done.stderr
    fact, hint, end = done.stdout.splitlines()
    assert fact.startswith("tensorferry is not installed in the worker tcp://")
    assert fact.endswith(f"run by {sys.executable}")
    assert hint.startswith('hint: install "tensorferry[dask]"')
    assert end == "answered"


def test_without_distributed_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorferry import dask

    monkeypatch.setattr(dask, "_plugin_type", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ferry.FrameworkNotFoundError) as raised:
        dask.TensorPlugin()
    assert str(raised.value).splitlines()[1] == 'hint: pip install "tensorferry[dask]"'


def test_the_plugin_is_one_of_workers(cluster: Any) -> None:
    from distributed import WorkerPlugin

    plugin = ferry.dask.TensorPlugin()
    assert isinstance(plugin, WorkerPlugin)
    assert isinstance(plugin, ferry.dask.TensorPlugin)
    # A second registration replaces the first.
    responses = cluster.client.register_plugin(plugin)
    assert {response["status"] for response in responses.values()} == {"OK"}


@pytest.mark.not_quick
def test_the_example_of_the_plugin_runs() -> None:
    text = inspect.getdoc(ferry.dask.TensorPlugin) or ""
    test = doctest.DocTestParser().get_doctest(text, {"ferry": ferry}, "TensorPlugin", None, 0)
    shown = io.StringIO()
    result = doctest.DocTestRunner().run(test, out=shown.write)
    assert (result.failed, result.attempted) == (0, 3), shown.getvalue()
