"""`ferry.ray.runtime_env`: merging, hooks, what a worker imports, Ray's switch, submitted jobs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.runtime_env import RuntimeEnv
from support import ray_tasks, subprocesses
from support.ray_tasks import environment_of
from support.refusals import refused

import tensorferry as ferry
from tensorferry.ray.environment import HOOK_FIELD, HOOK_NAME, JOB_CONFIG_VARIABLE, ZERO_COPY_SWITCH

USER_HOOK = "support.ray_tasks.flag_process"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this process look like the driver of a submitted job with these fields."""

    def submit(**runtime_env: Any) -> None:
        monkeypatch.setenv(JOB_CONFIG_VARIABLE, json.dumps({"runtime_env": runtime_env}))

    return submit


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """Pickling is on after a test, as it was."""
    yield
    ferry.pickling.enable()


def test_it_switches_pickling_on_in_this_process() -> None:
    ferry.pickling.disable()
    assert not ray_tasks.pickles_by_tensorferry()
    ferry.ray.runtime_env()
    assert ray_tasks.pickles_by_tensorferry()


def test_fields_are_merged_and_the_given_environment_is_unchanged() -> None:
    given = {"env_vars": {"A": "1"}, "working_dir": "."}
    merged = ferry.ray.runtime_env(given, excludes=["x"])
    assert merged == {**given, "excludes": ["x"], HOOK_FIELD: HOOK_NAME}
    merged["env_vars"]["B"] = "2"
    assert given == {"env_vars": {"A": "1"}, "working_dir": "."}
    assert ferry.ray.runtime_env(RuntimeEnv(env_vars={"A": "1"}))["env_vars"] == {"A": "1"}
    assert ferry.ray.runtime_env() == {HOOK_FIELD: HOOK_NAME}


def test_a_field_given_twice_is_refused() -> None:
    refused(
        ferry.InvalidArgumentError,
        ValueError,
        lambda: ferry.ray.runtime_env({"env_vars": {}}, env_vars={}),
    )


@pytest.mark.parametrize("hook", [3, "no_module", "colon:function", ""])
def test_a_hook_that_cannot_be_called_is_refused(hook: Any) -> None:
    refused(
        ferry.InvalidArgumentError,
        ValueError,
        lambda: ferry.ray.runtime_env(worker_process_setup_hook=hook),
    )


def test_our_hook_is_not_added_twice() -> None:
    for hook in (HOOK_NAME, ferry.ray.setup_worker):
        assert ferry.ray.runtime_env({HOOK_FIELD: hook})[HOOK_FIELD] == HOOK_NAME
    both = ferry.ray.runtime_env({HOOK_FIELD: USER_HOOK})
    assert ferry.ray.runtime_env(both)[HOOK_FIELD] is both[HOOK_FIELD]


def test_both_hooks_run_and_ours_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for hook in (USER_HOOK, ray_tasks.flag_process):
        monkeypatch.setenv("TENSORFERRY_TEST_HOOK", "")
        both = ferry.ray.runtime_env(worker_process_setup_hook=hook)[HOOK_FIELD]
        assert "flag_process" in both.__name__
        ferry.pickling.disable()
        both()
        assert ray_tasks.report()["hook"] == "after ours: True"


def test_the_driver_of_a_job_with_our_hook_gives_no_hook(job: Any) -> None:
    """Ray refuses a field that the job has."""
    job(worker_process_setup_hook=HOOK_NAME)
    assert ferry.ray.runtime_env(env_vars={"A": "1"}) == {"env_vars": {"A": "1"}}
    # As `RAY_RUNTIME_ENV_HOOK` calls it: with the fields of the job.
    assert ferry.ray.runtime_env({HOOK_FIELD: HOOK_NAME}) == {HOOK_FIELD: HOOK_NAME}
    refused(
        ferry.InvalidArgumentError,
        ValueError,
        lambda: ferry.ray.runtime_env(worker_process_setup_hook=USER_HOOK),
    )


def test_the_driver_of_a_job_with_another_hook(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job(worker_process_setup_hook=USER_HOOK)
    error = refused(ferry.InvalidArgumentError, ValueError, ferry.ray.runtime_env)
    assert USER_HOOK in str(error)
    assert ferry.ray.runtime_env({HOOK_FIELD: USER_HOOK})[HOOK_FIELD].hook == USER_HOOK
    monkeypatch.setenv("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    assert ferry.ray.runtime_env()[HOOK_FIELD].hook == USER_HOOK
    job()
    assert ferry.ray.runtime_env()[HOOK_FIELD] == HOOK_NAME


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_rays_switch_is_warned_about_in_the_driver(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match=f"{ZERO_COPY_SWITCH} is on(.|\n)*hint: ") as warned:
        ferry.ray.runtime_env(env_vars={ZERO_COPY_SWITCH: value})
    assert warned[0].filename == __file__
    monkeypatch.setenv(ZERO_COPY_SWITCH, value)
    with pytest.warns(UserWarning, match=ZERO_COPY_SWITCH):
        ferry.ray.runtime_env()
    with pytest.warns(UserWarning, match=ZERO_COPY_SWITCH):
        ferry.ray.setup_worker()


@pytest.mark.parametrize("value", ["0", "false", ""])
def test_no_warning_where_the_switch_is_off(value: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ferry.ray.runtime_env(env_vars={ZERO_COPY_SWITCH: value})


@pytest.mark.usefixtures("cluster")
def test_a_worker_imports_no_framework_that_it_does_not_use() -> None:
    task = ray.remote(ray_tasks.report)
    fresh = task.options(runtime_env=environment_of("no framework"))
    assert ray.get(fresh.remote()) == {"pickles": True, "hook": None, "frameworks": []}


@pytest.mark.not_quick
@pytest.mark.parametrize("hook", ["string", "function"])
def test_the_hook_of_a_user_runs_in_workers(hook: str) -> None:
    """In a cluster of its own, with Ray's switch on: workers warn about it."""
    shown = subprocesses.attempt_program("distributed/ray_hooks.py", hook)
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout.splitlines()[-1])
    assert report == {"pickles": True, "hook": "after ours: True", "frameworks": [], "warned": True}


@pytest.mark.not_quick
def test_submitted_jobs() -> None:
    """By `ray job submit`, with our hook as a string, and by the hook of Ray that runs in the
    driver."""
    shown = subprocesses.attempt_program("distributed/ray_jobs.py")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    reports = json.loads(shown.stdout.splitlines()[-1])
    ours = {"driver": True, "worker": True, "arrived": [0, 1, 2], "hook": None}
    assert reports == {
        "our hook, runtime_env in the driver": ours,
        "our hook, a driver without tensorferry": {**ours, "driver": False},
        "RAY_RUNTIME_ENV_HOOK": {**ours, "hook": "after ours: True"},
    }
