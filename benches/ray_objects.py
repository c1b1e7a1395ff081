"""Tensors through Ray with tensorferry, against arrays of NumPy through Ray in the same rounds.

Runs in the environment of Ray and Dask. Objects have 256 MiB of random numbers. A new object is put
when the store has freed the one before. Each result is checked at places in all of its memory, and
once as a whole. The time from actor to actor is that of the second one, from its call of the first
to having the tensor.
"""

import os
import secrets
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from typing import Any

import numpy as np
from table import Section, verdict

from tensorferry._tools.bench.measure import Timer, interleave
from tensorferry._tools.bench.timings import Timing, ratio, spread

MIB = 1 << 20
OBJECT_BYTES = {True: 32 * MIB, False: 256 * MIB}
# For an object of each framework, and for those that are on their way.
STORE_OBJECTS = 12
FRAMEWORKS = ("torch", "jax", "tensorflow")
# The most that a tensor may take, as a multiple of an array of NumPy.
TARGETS = {"put": 1.3, "get": 3.0, "actor to actor": 1.5}
# The most that a copy on arrival may take, as a multiple of a copy into warm memory.
COPY_TARGET = 1.2
CHECKED_INDICES = 64
STORE_WAIT_SECONDS = 60


def make(framework: str, size: int) -> Any:
    """Random numbers, the same in every process, in memory of the framework's own."""
    values = np.random.default_rng(size).random(size // 4, np.float32)
    if framework == "torch":
        import torch

        return torch.from_numpy(values).clone()
    if framework == "jax":
        import jax

        return jax.block_until_ready(jax.numpy.array(values))
    if framework == "tensorflow":
        import tensorflow

        return tensorflow.constant(values)
    return values


def check(x: Any, expected: np.ndarray, whole: bool = False) -> None:
    """Compares a tensor with the values that it must have, without tensorferry."""
    step = 1 if whole else len(expected) // CHECKED_INDICES
    found = np.asarray(x[::step])
    if found.tobytes() != expected[::step].tobytes():
        raise AssertionError("other values")


class Actor:
    """Holds a tensor, and takes one from another actor."""

    def __init__(self, framework: str, size: int) -> None:
        self.size = size
        self.own = make(framework, size)
        self.expected = np.asarray(self.own)

    def give(self) -> Any:
        return self.own

    def take(self, other: Any, shared: str | None, whole: bool) -> float:
        """The seconds from the call to the tensor; `shared` is the framework for which the memory
        of the object store is read without a copy."""
        import ray

        import tensorferry as ferry

        begin = time.perf_counter()
        ref = other.give.remote()
        if shared is None:
            got = ray.get(ref)
        else:
            got = ferry.ray.get(ref, shared, writable=False)
        took = time.perf_counter() - begin
        check(got, self.expected, whole)
        return took

    def checksum(self) -> int:
        return zlib.crc32(np.asarray(self.own))


def stored_bytes() -> int:
    """What the object store has in use."""
    import ray
    from ray._private.internal_api import node_stats

    (node,) = ray.nodes()
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"])
    return int(stats.store_stats.object_store_bytes_used)


def wait_for_store(limit: int) -> None:
    """Waits until objects that nobody refers to are freed."""
    deadline = time.monotonic() + STORE_WAIT_SECONDS
    while stored_bytes() > limit:
        if time.monotonic() > deadline:
            raise AssertionError(f"the store still has {stored_bytes()} bytes, not {limit}")
        time.sleep(0.01)


def put_timer(x: Any, expected: np.ndarray, limit: int) -> Timer:
    """Times `ray.put`, from a store that has freed the object before."""
    import ray

    def timed(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            wait_for_store(limit)
            begin = time.perf_counter()
            ref = ray.put(x)
            seconds += time.perf_counter() - begin
            check(ray.get(ref), expected)
            del ref
        return seconds

    return timed


def get_timer(read: Callable[[], Any], expected: np.ndarray) -> Timer:
    """Times a way to get an object."""

    def timed(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            begin = time.perf_counter()
            got = read()
            seconds += time.perf_counter() - begin
            check(got, expected)
            del got
        return seconds

    return timed


def actor_timer(pair: list[Any], shared: str | None, limit: int) -> Timer:
    """Times an object from the first actor to the second."""
    import ray

    def timed(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            wait_for_store(limit)
            seconds += ray.get(pair[1].take.remote(pair[0], shared, False))
        return seconds

    return timed


def row(job: str, ours: Timing, reference: Timing, target: float) -> dict[str, Any]:
    """One row of the table."""
    figure = ratio(ours, reference)
    return {
        "job": job,
        "ours ms": ours.median * 1e3,
        "reference ms": reference.median * 1e3,
        "ratio": figure,
        "spread": spread(ours, reference),
        "target": target,
        "verdict": verdict(figure <= target),
    }


def measure_put(sources: dict[str, Any], expected: np.ndarray, rounds: int) -> list[dict[str, Any]]:
    limit = stored_bytes()
    timers = {name: put_timer(x, expected, limit) for name, x in sources.items()}
    found = interleave(timers, rounds=rounds, batch=0)
    return [
        row(f"ray.put, {name}", found[name], found["numpy"], TARGETS["put"]) for name in FRAMEWORKS
    ]


def measure_get(sources: dict[str, Any], expected: np.ndarray, rounds: int) -> list[dict[str, Any]]:
    """A get without a copy, and one that copies, beside the copy of an array into warm memory."""
    import ray

    import tensorferry as ferry

    refs = {name: ray.put(x) for name, x in sources.items()}
    reads: dict[str, Callable[[], Any]] = {
        name: lambda ref=ref: ray.get(ref) for name, ref in refs.items() if name != "torch"
    }
    reads["torch"] = lambda: ferry.ray.get(refs["torch"], "torch", writable=False)
    for read in reads.values():
        check(read(), expected, whole=True)
    found = interleave(
        {name: get_timer(read, expected) for name, read in reads.items()}, rounds=rounds, batch=0
    )
    call = {"torch": "ferry.ray.get(writable=False)"}
    rows = [
        row(
            f"{call.get(name, 'ray.get')}, {name}",
            found[name],
            found["numpy"],
            TARGETS["get"],
        )
        for name in FRAMEWORKS
    ]
    stored = ray.get(refs["numpy"])
    warm = np.ones_like(stored)

    def copy() -> np.ndarray:
        np.copyto(warm, stored)
        return warm

    copies = {"ours": lambda: ray.get(refs["torch"]), "warm": copy}
    check(copies["ours"](), expected, whole=True)
    found = interleave(
        {name: get_timer(read, expected) for name, read in copies.items()}, rounds=rounds, batch=0
    )
    rows.append(row("ray.get, torch, a copy on arrival", found["ours"], found["warm"], COPY_TARGET))
    return rows


def measure_actors(size: int, rounds: int) -> list[dict[str, Any]]:
    import ray

    kind = ray.remote(num_cpus=0)(Actor)
    pairs = {name: [kind.remote(name, size) for _ in range(2)] for name in ("numpy", *FRAMEWORKS)}
    checksums = {ray.get(actor.checksum.remote()) for pair in pairs.values() for actor in pair}
    if len(checksums) != 1:
        raise AssertionError("the actors have other values")
    limit = stored_bytes()
    ways = {name: (pair, None) for name, pair in pairs.items()}
    ways["torch, writable=False"] = (pairs["torch"], "torch")
    for pair, shared in ways.values():
        ray.get(pair[1].take.remote(pair[0], shared, True))
    timers = {name: actor_timer(pair, shared, limit) for name, (pair, shared) in ways.items()}
    found = interleave(timers, rounds=rounds, batch=0)
    for pair in pairs.values():
        for actor in pair:
            ray.kill(actor)
    target = TARGETS["actor to actor"]
    return [
        row(f"actor to actor, {name}", found[name], found["numpy"], target)
        for name in ways
        if name != "numpy"
    ]


def run(quick: bool) -> dict[str, Any]:
    # Ray reads them when it is imported, and would write a token into the home directory.
    os.environ.update(
        RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0"
    )
    import ray

    import tensorferry as ferry

    size, rounds = OBJECT_BYTES[quick], 7 if quick else 15
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=STORE_OBJECTS * size,
        runtime_env=ferry.ray.runtime_env(),
    )
    try:
        sources = {name: make(name, size) for name in ("numpy", *FRAMEWORKS)}
        expected = sources["numpy"]
        rows = measure_put(sources, expected, rounds) + measure_get(sources, expected, rounds)
        del sources, expected
        rows += measure_actors(size, rounds)
    finally:
        ray.shutdown()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("ray", "torch", "jax"))
    section = Section(
        f"Through Ray, one tensor of {size // MIB} MiB, float32",
        {
            "job": "",
            "ours ms": ",.2f",
            "reference ms": ",.2f",
            "ratio": ".2f",
            "spread": ".0%",
            "target": ".1f",
            "verdict": "",
        },
        rows,
        notes=[
            "The reference is the same call for an array of NumPy, in the same rounds; for a copy "
            "on arrival it is a copy from the object store into warm memory by `np.copyto`.",
            f"Versions: {versions}.",
        ],
    )
    return asdict(section)
