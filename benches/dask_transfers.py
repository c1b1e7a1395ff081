"""From one worker of Dask to another, beside NumPy arrays in the same run.

A figure is what the client waits for a task in one worker that needs a tensor in the other: the
messages of the scheduler, the transfer and a look at both ends of the tensor. The transfers of all
kinds take turns. First without the plugin, as Dask does it by itself, then with it; NumPy arrays
take Dask's own way in both. The tensors are random, so that nothing can compress them, and each
result is checked at its ends, and once as a whole.

Not part of a full run: it needs the environment of Ray and Dask.
"""

import statistics
import time
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, wait
from table import Section, verdict

import tensorferry as ferry
from tensorferry._tools.bench.measure import round_order

MIB = 1 << 20
KINDS = {
    "NumPy": ("numpy", "float32"),
    "PyTorch": ("torch", "float32"),
    "PyTorch, bfloat16": ("torch", "bfloat16"),
    "JAX": ("jax", "float32"),
    "TensorFlow": ("tensorflow", "float32"),
}
# Dask loses them: the task that needs one never ends.
LOST_BY_DASK = "PyTorch, bfloat16"
MAX_RATIO = 1.5


@cache
def values(size: int) -> np.ndarray:
    """Random bytes, the same in every process."""
    return np.random.default_rng(26).integers(0, 256, size, np.uint8)


@cache
def tensor(kind: str, size: int) -> Any:
    """What a worker holds, and sends again and again."""
    framework, dtype = KINDS[kind]
    if dtype == "bfloat16":
        import ml_dtypes

        return ferry.to(values(size).view(ml_dtypes.bfloat16), framework, copy=True)
    return ferry.to(values(size).view(dtype), framework, copy=True)


def inspect(x: Any, kind: str, whole: bool) -> bool:
    """Whether a tensor has the framework and the bytes of its kind."""
    framework, dtype = KINDS[kind]
    raw = ferry.to(x, "numpy").reshape(-1).view(np.uint8)
    expected = values(raw.nbytes)
    same = raw[0] == expected[0] and raw[-1] == expected[-1]
    if whole:
        same = same and np.array_equal(raw, expected) and dtype in str(x.dtype)
    return bool(same and framework in type(x).__module__.replace("jaxlib", "jax"))


def held(dask_worker: Any) -> int:
    return len(dask_worker.data)


class Workers:
    """Two workers, and transfers from the first to the second."""

    def __init__(self, client: Client, size: int) -> None:
        self.client, self.size = client, size
        self.first, self.second = sorted(client.scheduler_info()["workers"])

    def transfer(self, kind: str, whole: bool = False) -> float:
        """Seconds of one transfer. Afterwards no worker holds a tensor that Dask knows of."""
        source = self.client.submit(tensor, kind, self.size, workers=[self.first], pure=False)
        wait(source)
        start = time.perf_counter()
        found = self.client.submit(inspect, source, kind, whole, workers=[self.second], pure=False)
        same = found.result()
        took = time.perf_counter() - start
        if not same:
            raise AssertionError(f"{kind}: another tensor arrived")
        del source, found
        while any(self.client.run(held).values()):
            pass
        return took

    def measure(self, kinds: list[str], rounds: int) -> dict[str, float]:
        """The median seconds of each kind."""
        for kind in kinds:
            self.transfer(kind, whole=True)
            self.transfer(kind)
        found: dict[str, list[float]] = {kind: [] for kind in kinds}
        for turn in range(rounds):
            for kind in round_order(kinds, turn):
                found[kind].append(self.transfer(kind))
        return {kind: statistics.median(seconds) for kind, seconds in found.items()}


def run(quick: bool) -> dict[str, Any]:
    size, title = (16 * MIB, "16 MiB") if quick else (256 * MIB, "256 MiB")
    columns = {"tensor": "", "ours ms": ",.1f", "NumPy ms": ",.1f", "x NumPy": ",.2f"}
    columns |= {"limit": ",.1f", "verdict": "", "Dask's own ms": ",.1f", "own x NumPy": ",.2f"}
    result = Section(f"Dask: from worker to worker, {title}", columns)
    local = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0)
    with local, Client(local) as client:
        workers = Workers(client, size)
        kinds = list(KINDS)
        own = workers.measure([kind for kind in kinds if kind != LOST_BY_DASK], 3 if quick else 5)
        client.register_plugin(ferry.dask.TensorPlugin())
        ours = workers.measure(kinds, 5 if quick else 11)
    base = ours.pop("NumPy")
    for kind, seconds in ours.items():
        theirs = own.get(kind)
        result.rows.append(
            {
                "tensor": kind,
                "ours ms": seconds * 1e3,
                "NumPy ms": base * 1e3,
                "x NumPy": seconds / base,
                "limit": MAX_RATIO,
                "verdict": verdict(seconds <= MAX_RATIO * base),
                "Dask's own ms": None if theirs is None else theirs * 1e3,
                "own x NumPy": None if theirs is None else theirs / own["NumPy"],
            }
        )
    result.notes.append(
        "What the client waits for a task that needs a tensor of the other worker. `Dask's own`: "
        "before the plugin was registered, beside NumPy arrays in that part of the run "
        f"({own['NumPy'] * 1e3:,.1f} ms). A bfloat16 tensor of PyTorch never arrives then."
    )
    return asdict(result)
