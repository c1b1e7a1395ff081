"""How fast tensors cross between a GPU and the host, against the native one-liners and the link.

Times are of the wall clock, from an idle device to an idle device; results are checked. The limit
is a copy between the GPU and pinned memory that is there already. First calls are measured in fresh
processes. Not part of a full run: see `gpu.py`.
"""

import os
import statistics
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import child
import numpy as np
from gpu import namespace
from table import Section, verdict

import tensorferry as ferry
from tensorferry._tools.bench.measure import (
    Timer,
    interleave,
    interleave_cold,
    make_call_timer,
)

KIB, MIB = 1 << 10, 1 << 20


def timer(work: Callable[[], Any]) -> Timer:
    """From an idle device to an idle device."""
    import torch

    return make_call_timer(work, torch.cuda.synchronize)


def interleaved(jobs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median of each, one call in each round."""
    timers = {name: timer(work) for name, work in jobs.items()}
    found = interleave(timers, rounds=rounds, batch=0)
    return {name: timing.median for name, timing in found.items()}


def row(job: str, size: int, found: dict[str, float], times: float, share: float) -> dict[str, Any]:
    """`times` is how often as quick as the one-liner it is to be, `share` how much of the limit."""
    ours, limit = found["ours"], found.get("limit", 0.0)
    passes = found["native"] / ours >= times and (limit / ours >= share or not share)
    return {
        "job": job,
        "bytes": f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB",
        "us": ours * 1e6,
        "GB/s": size / ours / 1e9,
        "x native": found["native"] / ours,
        "of the limit": limit / ours,
        "target": " and ".join(
            text
            for text, wanted in ((f"{times:g} x", times), (f"{share:.2f} of the limit", share))
            if wanted
        ),
        "verdict": verdict(passes),
    }


def first(size: int) -> float:
    """Seconds of the first download of a process, which has everything to set up."""
    import torch

    x = torch.randn(size // 4, device="cuda")
    return timer(lambda: ferry.to(x, "numpy"))(1)


def downloads(names: dict[str, Any], size: int, rounds: int) -> list[dict[str, Any]]:
    torch = names["torch"]
    x = torch.randn(size // 4, device="cuda")
    if not torch.equal(torch.from_numpy(ferry.to(x, "numpy")), x.cpu()):
        raise AssertionError("other values")
    pinned = torch.empty(size // 4, pin_memory=True)
    jobs: dict[str, Callable[[], Any]] = {
        "ours": lambda: ferry.to(x, "numpy"),
        "limit": lambda: pinned.copy_(x, non_blocking=True),
        "native": lambda: x.cpu().numpy(),
    }
    targets = {4 * KIB: (1, 0), MIB: (2, 0), 16 * MIB: (3, 0), 64 * MIB: (3, 0)}
    found = interleaved(jobs, rounds)
    rows = [row("download, dropped", size, found, *targets.get(size, (0, 0.90)))]
    if size >= 256 * MIB:
        kept: list[Any] = []
        keep = {"ours": timer(lambda: kept.append(jobs["ours"]()))}
        found["ours"] = statistics.median(interleave_cold(keep, rounds=4)["ours"].rounds[1:])
        rows.append(row("download, kept", size, found, 10, 0))
        kept.clear()
        shown = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}
        fresh = [child.call("transfers:first", size, environment=shown) for _ in range(3)]
        found["ours"] = statistics.median(fresh)
        rows.append(row("download, first", size, found, 15, 0))
    return rows


def uploads(names: dict[str, Any], size: int, rounds: int) -> list[dict[str, Any]]:
    torch = names["torch"]
    a = np.random.default_rng(1).standard_normal(size // 4, dtype=np.float32)
    if not torch.equal(ferry.to(a, "torch", device="cuda").cpu(), torch.from_numpy(a)):
        raise AssertionError("other values")
    pinned, there = torch.from_numpy(a).pin_memory(), torch.empty(size // 4, device="cuda")
    jobs = {
        "ours": lambda: ferry.to(a, "torch", device="cuda"),
        "limit": lambda: there.copy_(pinned, non_blocking=True),
        "native": lambda: torch.from_numpy(a).cuda(),
    }
    targets = {4 * KIB: (1, 0), MIB: (2, 0), 16 * MIB: (1, 0), 64 * MIB: (1, 0)}
    return [row("upload", size, interleaved(jobs, rounds), *targets.get(size, (5, 0.80)))]


def shaped(names: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """Strided and cast downloads, against dense ones of as many bytes."""
    torch = names["torch"]
    x = torch.randn(8192, 16384, device="cuda")
    rows = []
    for name, view, dtype in (
        ("transposed", x[:, :8192].T, None),
        ("half of the columns", x[:, 8192:], None),
        ("cast to float16", x, "float16"),
        ("cast to float64", x[:, :4096], "float64"),
        ("rows in the middle", x[2048:6144], None),
    ):
        result = ferry.to(view, "numpy", dtype=dtype)
        native = view.cpu().numpy() if dtype is None else view.cpu().numpy().astype(dtype)
        if not np.array_equal(result, native):
            raise AssertionError(f"{name}: other values")
        dense = torch.empty(result.nbytes // 4, device="cuda").normal_()
        jobs = {
            "ours": lambda view=view, dtype=dtype: ferry.to(view, "numpy", dtype=dtype),
            "limit": lambda dense=dense: ferry.to(dense, "numpy"),
            "native": lambda view=view: view.cpu().numpy(),
        }
        found = interleaved(jobs, rounds)
        rows.append(row(f"{name} (limit: dense)", result.nbytes, found, 1, 0.85))
    return rows


def run(quick: bool) -> dict[str, Any]:
    names = namespace()
    section = Section(
        "Between GPU and host, float32",
        {
            "job": "",
            "bytes": "",
            "us": ",.0f",
            "GB/s": ".1f",
            "x native": ".2f",
            "of the limit": ".2f",
            "target": "",
            "verdict": "",
        },
        notes=[
            "Native: `t.cpu().numpy()` and `torch.from_numpy(a).cuda()`. Limit: pinned memory that "
            "is there already.",
        ],
    )
    sizes = [4 * KIB, MIB, 16 * MIB] + ([] if quick else [256 * MIB, 2048 * MIB])
    for size in sizes:
        rounds = 200 if size <= MIB else 30 if size < 256 * MIB else 5
        section.rows += downloads(names, size, rounds)
        section.rows += uploads(names, size, rounds)
    if not quick:
        section.rows += shaped(names, 7)
    held = ferry.memory_stats()
    section.notes.append(
        f"At the end {held.idle_bytes // MIB} MiB were kept idle, {held.pinned_bytes // MIB} MiB "
        f"pinned, of at most {held.limit_bytes // MIB} MiB."
    )
    return asdict(section)
