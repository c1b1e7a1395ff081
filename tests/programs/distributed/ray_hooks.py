"""Starts Ray with a hook of the user and Ray's switch on in the workers, and prints what a worker
is then. Argument: "string" or "function", the form of the hook."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path

from support import ray_tasks
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

HOOKS = {"string": "support.ray_tasks.flag_process", "function": ray_tasks.flag_process}
SWITCH = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"

os.environ.update(ray_tasks.cluster_settings())

import ray  # noqa: E402


def is_in_logs(logs: Path, text: str) -> bool:
    """Whether a worker wrote a text to its standard error."""
    return any(text in path.read_text() for path in logs.glob("worker-*.err"))


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the driver warns, too
        environment = ferry.ray.runtime_env(
            worker_process_setup_hook=HOOKS[sys.argv[1]],
            env_vars={SWITCH: "1", "PYTHONWARNINGS": "default"},
        )
    context = ray.init(
        "local", num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=environment
    )
    report = ray.get(ray.remote(ray_tasks.report).remote())
    # With its switch on, Ray itself imports PyTorch in workers.
    report["frameworks"] = [name for name in report["frameworks"] if name != "torch"]
    logs = Path(context.address_info["session_dir"], "logs")
    deadline = time.monotonic() + HANG_SECONDS
    while not is_in_logs(logs, f"{SWITCH} is on") and time.monotonic() < deadline:
        time.sleep(0.1)
    report["warned"] = is_in_logs(logs, f"{SWITCH} is on")
    ray.shutdown()
    print(json.dumps(report))


main()
