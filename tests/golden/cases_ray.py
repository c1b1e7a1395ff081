"""Errors of `ferry.ray` that need no cluster: fields, hooks, and hooks of submitted jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import tensorferry as ferry

Case = Callable[[Path], object]


def hook(value: Any) -> Case:
    return lambda _: ferry.ray.runtime_env(worker_process_setup_hook=value)


def in_job(job_hook: str, **fields: Any) -> Case:
    """The call in the driver of a submitted job that has a hook."""
    job = json.dumps({"runtime_env": {"worker_process_setup_hook": job_hook}})

    def call(_: Path) -> object:
        with mock.patch.dict(os.environ, {"RAY_JOB_CONFIG_JSON_ENV_VAR": job}):
            return ferry.ray.runtime_env(**fields)

    return call


CASES: dict[str, Case] = {
    "field given twice": lambda _: ferry.ray.runtime_env({"env_vars": {}}, env_vars={}),
    "hook without a module": hook("setup"),
    "hook that is no function": hook(3),
    "job with another hook": in_job("mine.setup"),
    "job with our hook and another in the driver": in_job(
        "tensorferry.ray.setup_worker", worker_process_setup_hook="mine.setup"
    ),
}
