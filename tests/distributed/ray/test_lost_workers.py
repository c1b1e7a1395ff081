"""Killed actors and lost workers leave neither memory of the object store nor descriptors."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray._private.internal_api import node_stats
from support import ray_tasks
from support.ray_tasks import environment_of
from support.share_counts import descriptors, folders, mappings, shared_files
from support.subprocesses import HANG_SECONDS

import tensorferry as ferry

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.not_quick]

Holder = ray.remote(num_cpus=0)(ray_tasks.Holder)
BYTES = 16 << 20


def store_bytes() -> int:
    """The bytes that objects have in the object store of the node."""
    (node,) = ray.nodes()
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"])
    return int(stats.store_stats.object_store_bytes_used)


def raylet() -> int:
    """The process that holds the object store, which all workers are connected to."""
    return int(ray._private.worker._global_node.all_processes["raylet"][0].process.pid)


def memory_files_of_raylet() -> int:
    """Its descriptors of memory, of which the object store has some and each leak one more. Its
    sockets come and go with the workers that Ray keeps ready."""
    folder = f"/proc/{raylet()}/fd"
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(f"{folder}/{name}").startswith(("/dev/shm", "/memfd:"))
        except FileNotFoundError:
            continue
    return count


def wait_until(condition: Callable[[], bool], what: Callable[[], Any]) -> None:
    """Polls a condition until a deadline that only a hang reaches."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def is_gone(process: int) -> bool:
    """Whether a process has ended and its parent knows."""
    return not os.path.exists(f"/proc/{process}")


def kill_by_ray(actor: Any, _process: int) -> None:
    ray.kill(actor)


def kill_by_signal(_actor: Any, process: int) -> None:
    os.kill(process, signal.SIGKILL)


@pytest.mark.one_case
@pytest.mark.parametrize("kill", [kill_by_ray, kill_by_signal])
@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_a_killed_actor_leaves_nothing(framework: str, kill: Callable[[Any, int], None]) -> None:
    """It had put objects, and mapped what it got."""
    before, names, files = store_bytes(), shared_files(), memory_files_of_raylet()
    actor = Holder.options(runtime_env=environment_of(framework)).remote()
    process = ray.get(actor.process.remote())
    assert ray.get(actor.put_and_keep.remote(framework, BYTES)) == 4 * BYTES
    assert store_bytes() >= 4 * BYTES
    kill(actor, process)
    wait_until(lambda: is_gone(process), lambda: process)
    wait_until(lambda: store_bytes() <= before, store_bytes)
    wait_until(lambda: memory_files_of_raylet() <= files, memory_files_of_raylet)
    assert shared_files() <= names


def test_objects_of_the_driver_outlive_a_killed_reader() -> None:
    """They are freed when the driver releases them. What it got stays readable."""
    before = store_bytes()
    ref = ray.put(ferry.to(bytearray(b"\x05") * BYTES, "torch"))
    actor = Holder.options(runtime_env=environment_of("torch")).remote()
    process = ray.get(actor.process.remote())
    assert ray.get(actor.get_and_keep.remote([ref])) == BYTES
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: is_gone(process), lambda: process)
    got = ferry.ray.get(ref, "numpy")
    assert (got == 5).all()
    del ref
    assert (got == 5).all()
    assert store_bytes() >= BYTES
    del got
    wait_until(lambda: store_bytes() <= before, store_bytes)


def test_the_driver_keeps_no_descriptor_or_mapping() -> None:
    """tensorferry itself opens nothing: objects lie in memory of Ray."""
    ray.get(ray.put(ferry.to(bytearray(BYTES), "torch")))
    gc.collect()
    before, held, sockets = store_bytes(), descriptors(), folders()
    for framework in ("numpy", "torch", "jax"):
        ferry.ray.get([ray.put(ferry.to(bytearray(BYTES), framework))] * 3, framework)
    assert mappings() == 0
    assert folders() <= sockets
    wait_until(lambda: descriptors() <= held, lambda: (held, descriptors()))
    wait_until(lambda: store_bytes() <= before, store_bytes)
