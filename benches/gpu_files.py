"""Tensors between files in the page cache and a GPU, against safetensors, torch and NumPy.

Times are of the wall clock, from an idle device to an idle device; results are checked. Not part of
a full run: see `gpu.py`.
"""

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gpu import namespace
from table import Section, verdict
from transfers import interleaved

import tensorferry as ferry

MIB = 1 << 20


def model(torch: Any, sizes: list[int]) -> dict[str, Any]:
    return {f"layer.{i}": torch.randn(size // 4, device="cuda") for i, size in enumerate(sizes)}


def same(torch: Any, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found.keys() != expected.keys() or not all(
        found[name].is_cuda and torch.equal(found[name], expected[name]) for name in expected
    ):
        raise AssertionError("other values")


def row(job: str, found: dict[str, float], size: int, target: float) -> dict[str, Any]:
    ours, safe = found.pop("ours"), found["safetensors"]
    best = min(found, key=lambda name: found[name])
    return {
        "job": job,
        "ms": ours * 1e3,
        "GB/s": size / ours / 1e9,
        "x safetensors": safe / ours,
        "x best": found[best] / ours,
        "target": target,
        "verdict": verdict(safe / ours >= target and found[best] >= ours),
        "best native": best,
    }


def measure(
    names: dict[str, Any], title: str, sizes: list[int], rounds: int
) -> list[dict[str, Any]]:
    import safetensors.torch

    torch = names["torch"]
    tensors, size = model(torch, sizes), sum(sizes)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path, pickled, new = f"{folder}/x.safetensors", f"{folder}/x.pt", f"{folder}/new"
        safetensors.torch.save_file(tensors, path)
        torch.save(tensors, pickled)
        jobs: dict[str, Callable[[], Any]] = {
            "ours": lambda: ferry.load(path, "torch", device="cuda"),
            "safetensors": lambda: safetensors.torch.load_file(path, device="cuda"),
            "torch.load": lambda: torch.load(pickled, map_location="cuda", mmap=True),
        }
        for job in jobs.values():
            same(torch, job(), tensors)
        rows.append(row(f"load, {title}", interleaved(jobs, rounds), size, 2))
        jobs = {
            "ours": lambda: ferry.save(f"{folder}/ours.safetensors", tensors),
            "safetensors": lambda: safetensors.torch.save_file(tensors, new),
            "torch.save": lambda: torch.save(tensors, new),
        }
        rows.append(row(f"save, {title}", interleaved(jobs, max(3, rounds // 3)), size, 1))
        same(torch, ferry.load(f"{folder}/ours.safetensors", "torch", device="cuda"), tensors)
    return rows


def run(quick: bool) -> dict[str, Any]:
    names = namespace()
    section = Section(
        "Between files in the page cache and a GPU, float32",
        {
            "job": "",
            "ms": ",.2f",
            "GB/s": ".1f",
            "x safetensors": ".2f",
            "x best": ".2f",
            "target": ".1f",
            "verdict": "",
            "best native": "",
        },
        notes=["Ours has reached the disk when a save returns; the others have not."],
    )
    share = 8 if quick else 1
    for title, sizes in (
        ("one tensor of 1 GiB", [1024 * MIB // share]),
        ("100 tensors of 10 MiB", [10 * MIB // share] * 100),
        ("1,000 tensors of 64 KiB", [65536] * 1000),
    ):
        section.rows += measure(names, title, sizes, 5 if quick else 9)
    return asdict(section)
