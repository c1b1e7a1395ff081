"""Pickles with out-of-band buffers: ours of each framework, against NumPy's own of the same tree.

"nothing to copy" loads over the buffers that were dumped. "a copy on arrival" loads a torch tensor
over read-only bytes, against a copy of the same bytes into memory that was touched before. To add a
job, give it an entry in `JOBS`.
"""

import pickle
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from table import Section, verdict

from tensorferry._tools.bench.measure import interleave, make_timer
from tensorferry._tools.bench.timings import Timing, ratio, spread

MIB = 1 << 20
TENSOR_BYTES, REFERENCE_TENSOR_BYTES = 256 * MIB, MIB
LEAVES = 1000
FRAMEWORKS = ("torch", "jax", "tensorflow")
# The ratio to NumPy's own pickles, and that of the large tensor to the small one.
LIMIT, GROWTH_LIMIT, COPY_LIMIT = 2.0, 3.0, 1.2
TREE_LIMITS = {"torch": 1.5, "jax": 2.0, "tensorflow": 1.5}

OURS = "pickling.loads(*pickling.dumps(x))"
NUMPY = "numpy_pickle(array)"


def numpy_pickle(x: Any) -> Any:
    """NumPy's own out-of-band pickling."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=buffers)


def measure(codes: list[str], scope: dict[str, Any], quick: bool) -> dict[str, Timing]:
    timers = {code: make_timer(code, scope) for code in codes}
    return interleave(timers, rounds=10 if quick else 60, batch=0.004, budget=20)


def check(result: Any, expected: np.ndarray) -> None:
    import tensorferry as ferry

    if not np.array_equal(ferry.to(result, "numpy"), expected):
        raise AssertionError("the pickle gave other values")


def row(job: str, framework: str, ours: Timing, peer: Timing, limit: float) -> dict[str, Any]:
    figure = ratio(ours, peer)
    return {
        "job": job,
        "framework": framework,
        "us": ours.median * 1e6,
        "peer us": peer.median * 1e6,
        "ratio": figure,
        "spread": spread(ours, peer),
        "target": limit,
        "verdict": verdict(figure <= limit),
    }


def nothing_to_copy(framework: str, quick: bool) -> list[dict[str, Any]]:
    """A tensor of 256 MiB, beside NumPy's of 256 MiB and ours of 1 MiB."""
    import tensorferry as ferry

    values = np.random.default_rng().standard_normal(TENSOR_BYTES // 4, np.float32)
    x = ferry.to(values, framework, copy=True)
    small = ferry.to(values[: REFERENCE_TENSOR_BYTES // 4], framework, copy=True)
    scope = {"pickling": ferry.pickling, "numpy_pickle": numpy_pickle, "array": values}
    scope |= {"x": x, "small": small}
    check(ferry.pickling.loads(*ferry.pickling.dumps(x)), values)
    of_small = OURS.replace("(x)", "(small)")
    found = measure([OURS, NUMPY, of_small], scope, quick)
    return [
        row("256 MiB, nothing to copy / NumPy", framework, found[OURS], found[NUMPY], LIMIT),
        row("256 MiB / 1 MiB", framework, found[OURS], found[of_small], GROWTH_LIMIT),
    ]


def tree(framework: str, quick: bool) -> list[dict[str, Any]]:
    """1,000 small tensors, beside the same tree in NumPy."""
    import tensorferry as ferry

    values = np.random.default_rng().standard_normal((LEAVES, 16), np.float32)
    arrays = [leaf.copy() for leaf in values]
    tensors = [ferry.to(leaf, framework, copy=True) for leaf in arrays]
    scope = {"pickling": ferry.pickling, "numpy_pickle": numpy_pickle}
    scope |= {"x": tensors, "array": arrays}
    for back, leaf in zip(
        ferry.pickling.loads(*ferry.pickling.dumps(tensors)), arrays, strict=True
    ):
        check(back, leaf)
    found = measure([OURS, NUMPY], scope, quick)
    limit = TREE_LIMITS[framework]
    return [row("1,000 tensors of 64 bytes / NumPy", framework, found[OURS], found[NUMPY], limit)]


def copy_on_arrival(framework: str, quick: bool) -> list[dict[str, Any]]:
    """What PyTorch gets of read-only bytes, beside a copy into memory that is mapped already."""
    import torch

    import tensorferry as ferry

    if framework != "torch":
        return []
    values = np.random.default_rng().standard_normal(TENSOR_BYTES // 4, np.float32)
    data, buffers = ferry.pickling.dumps(torch.from_numpy(values))
    received = bytes(buffers[0].raw())
    source, warm = (
        torch.frombuffer(bytearray(received), dtype=torch.float32),
        torch.rand(TENSOR_BYTES // 4),
    )
    scope = {"pickling": ferry.pickling, "data": data, "received": received}
    scope |= {"source": source, "warm": warm}
    ours, peer = "pickling.loads(data, [received])", "warm.copy_(source)"
    check(ferry.pickling.loads(data, [received]), values)
    found = measure([ours, peer], scope, quick)
    return [
        row("256 MiB, a copy on arrival / copy_", framework, found[ours], found[peer], COPY_LIMIT)
    ]


JOBS: tuple[Callable[[str, bool], list[dict[str, Any]]], ...] = (
    nothing_to_copy,
    tree,
    copy_on_arrival,
)


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "Pickles: dumps and loads with out-of-band buffers",
        {
            "job": "",
            "framework": "",
            "us": ",.1f",
            "peer us": ",.1f",
            "ratio": ".2f",
            "spread": ".0%",
            "target": ".2f",
            "verdict": "",
        },
        notes=["Peer: what the job names after the stroke, in the same rounds."],
    )
    for job in JOBS:
        for framework in FRAMEWORKS:
            section.rows += job(framework, quick)
    return asdict(section)
