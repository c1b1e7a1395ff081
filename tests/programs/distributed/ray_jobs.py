"""Starts Ray with a dashboard, submits jobs by `ray job submit`, and prints what each reported.

With an argument it is the entrypoint of a job: the driver, which calls `runtime_env` or leaves
tensorferry alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support import ray_tasks
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

OUR_HOOK = {"worker_process_setup_hook": "tensorferry.ray.setup_worker"}
USER_HOOK = {"worker_process_setup_hook": "support.ray_tasks.flag_process"}
IN_DRIVER = {"env_vars": {"RAY_RUNTIME_ENV_HOOK": "tensorferry.ray.runtime_env"}}

# The runtime environment of the job, and what its driver does.
JOBS: dict[str, tuple[dict[str, Any], str]] = {
    "our hook, runtime_env in the driver": (OUR_HOOK, "runtime_env"),
    "our hook, a driver without tensorferry": (OUR_HOOK, "nothing"),
    "RAY_RUNTIME_ENV_HOOK": ({**USER_HOOK, **IN_DRIVER}, "nothing"),
}


def work(x: Any) -> tuple[dict[str, Any], Any]:
    """What runs in a worker."""
    return ray_tasks.report(), x


def drive(what: str, result: str) -> None:
    """The driver of a job, which writes what it saw to a file."""
    import ray
    import torch

    ray.init(runtime_env=ferry.ray.runtime_env() if what == "runtime_env" else None)
    report, back = ray.get(ray.remote(work).remote(torch.arange(3)))
    seen = {
        "driver": ray_tasks.pickles_by_tensorferry(),
        "worker": report["pickles"],
        "arrived": back.tolist(),
        "hook": report["hook"],
    }
    Path(result).write_text(json.dumps(seen))


def submit(address: str, environment: dict[str, Any], what: str, result: str) -> None:
    """Submits one job, and waits for its end."""
    ray_command = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit"]
    options = ["--address", address, "--runtime-env-json", json.dumps(environment), "--"]
    command = [*ray_command, *options, sys.executable, __file__, what, result]
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # The dashboard answers before the agent that starts jobs does.
        if "No available agent" not in done.stderr or time.monotonic() > deadline:
            break
    assert done.returncode == 0, done.stdout + done.stderr


def main() -> None:
    os.environ.update(ray_tasks.cluster_settings())
    import ray

    reports = {}
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        context = ray.init(
            "local", num_cpus=1, include_dashboard=True, log_to_driver=False, _temp_dir=folder
        )
        # As `ray start` does. Without it, the driver of a job may find another cluster.
        Path(folder, "ray_current_cluster").write_text(context.address_info["gcs_address"])
        for number, (name, (environment, what)) in enumerate(JOBS.items()):
            result = Path(folder, f"result-{number}")
            submit(f"http://{context.dashboard_url}", environment, what, str(result))
            reports[name] = json.loads(result.read_text())
        ray.shutdown()
    print(json.dumps(reports))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        drive(*sys.argv[1:])
    else:
        main()
