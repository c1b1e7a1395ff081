"""Operations under a limit of the address space, each in a forked child of this process."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import tensorferry as ferry

COUNT = 30_000
KIB, MIB = 1 << 10, 1 << 20

# What a child that was not killed says with its exit code.
SUCCESS, OUT_OF_MEMORY, PYTHONS_ERROR, OTHER_ERROR = 0, 3, 4, 5
NAMES = {
    SUCCESS: "success",
    OUT_OF_MEMORY: "out of memory",
    PYTHONS_ERROR: "Python's MemoryError",
    OTHER_ERROR: "other error",
}


def limit(more: int) -> None:
    """Limits the address space to what is in use and `more` bytes."""
    with open("/proc/self/statm") as numbers:
        used = int(numbers.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))


def lift() -> None:
    """Takes the limit away."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def fill() -> None:
    """Takes all free memory of the heap, so that only what a limit leaves can be had."""
    take = ctypes.CDLL(None).malloc
    take.argtypes, take.restype = (ctypes.c_size_t,), ctypes.c_void_p
    limit(0)
    for size in (MIB, 256 * KIB, 64 * KIB, 16 * KIB, 4 * KIB, KIB, 256, 64, 16):
        while take(size):
            pass
    lift()


def attempt(operation: Callable[[], object], more: int) -> tuple[str, str]:
    """Runs an operation in a child that has `more` bytes left; its outcome and its stderr."""
    with tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stderr.fileno(), 2)
            code = OTHER_ERROR
            try:
                limit(more)
                try:
                    result = operation()
                finally:
                    lift()
                del result
                code = SUCCESS
            except ferry.OutOfMemoryError as error:
                code = OUT_OF_MEMORY if error.hint else OTHER_ERROR
                if not error.hint:
                    print("no hint:", error, file=sys.stderr)
            except MemoryError as error:
                code = PYTHONS_ERROR
                print(f"{type(error).__mro__}: {error}", file=sys.stderr)
            except BaseException as error:
                print(f"{type(error).__mro__}: {error}", file=sys.stderr)
            sys.stderr.flush()
            os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stderr.seek(0)
        text = stderr.read().decode(errors="replace")
    return NAMES.get(status, f"ended by signal {-status}"), text


def traced(tree: dict, framework: str) -> object:
    """Carries a tree while a trace is open."""
    with ferry.trace() as trips:
        results = ferry.to(tree, framework)
    assert len(trips) == len(tree)
    return results, trips


def traced_one_by_one(arrays: list[np.ndarray]) -> object:
    """Carries tensors one at a time while a trace is open."""
    with ferry.trace() as trips:
        for array in arrays:
            ferry.to(array, "numpy", copy=True)
    return trips


def held(carry: Callable[..., object], *arguments: list) -> list[object]:
    """Carries tensors one at a time, and keeps the results, until memory runs out.

    Calls no Python function: CPython 3.11 raises a SystemError if it finds no memory for a frame.
    """
    results: list[object] = []
    while True:
        results.extend(map(carry, *arguments))


def operations(framework: str, count: int) -> dict[str, Callable[[], object]]:
    """What is tried, by name, with trees of `count` tensors."""
    arrays = [np.full(16, number, np.float32) for number in range(count)]
    tree = {f"layer {number}": array for number, array in enumerate(arrays)}
    nested = {"a": arrays[: count // 2], "b": tuple(arrays[count // 2 :])}
    theirs = ferry.to(arrays, framework)
    large = np.ones(4 * MIB, np.uint8)
    tickets = ferry.publish(nested), ferry.publish(large)
    texts = [str(ticket) for ticket in tickets]
    planned = ferry.plan(tree, framework)
    return {
        "share a list": lambda: ferry.to(arrays, framework),
        "share a dict": lambda: ferry.to(tree, framework),
        "share to numpy": lambda: ferry.to(theirs, "numpy"),
        "copy a tree": lambda: ferry.to(nested, framework, copy=True),
        "copy a tree to numpy": lambda: ferry.to(nested, "numpy", copy=True),
        "plan a tree": lambda: ferry.plan(tree, framework),
        "print a plan": lambda: str(planned),
        "html of a plan": planned._repr_html_,
        "dict of a plan": planned.as_dict,
        "parts of a plan": lambda: planned.parts,
        "publish a tree": lambda: ferry.publish(nested),
        "attach a tree": lambda: (ferry.attach(texts[0], "numpy"), tickets),
        "attach a tree to the framework": lambda: ferry.attach(texts[0], framework),
        "trace a tree": lambda: traced(tree, framework),
        "trace one by one": lambda: traced_one_by_one(arrays),
        "share one": lambda: ferry.to(large, framework),
        "copy one": lambda: ferry.to(large, framework, copy=True),
        "cast one": lambda: ferry.to(large, "numpy", dtype="float64"),
        "plan one": lambda: ferry.plan(large, framework),
        "publish one": lambda: ferry.publish(large),
        "attach one": lambda: ferry.attach(texts[1], framework),
        "attach a copy of one": lambda: ferry.attach(texts[1], framework, copy=True),
    }


def long_headers(folder: Path) -> dict[str, Callable[[], object]]:
    """Reads files with headers, or an index, of a MiB that is nearly all spaces."""
    size = MIB
    text = repr({"descr": "|u1", "fortran_order": False, "shape": (1,)})
    npy = b"\x93NUMPY\x02\x00" + struct.pack("<I", size) + text.encode().ljust(size) + b"\0"
    (folder / "a.npy").write_bytes(npy)
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy)
    infos = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
    (folder / "a.safetensors").write_bytes(
        struct.pack("<Q", size) + infos.encode().ljust(size) + b"\0"
    )
    ferry.save(folder / "b.safetensors", {"a": np.zeros(1, np.uint8)})
    index = json.dumps({"weight_map": {"a": "b.safetensors"}})
    (folder / "b.safetensors.index.json").write_text(index.ljust(size))
    names = ("a.npy", "a.npz", "a.safetensors", "b.safetensors.index.json")
    return {name: partial(ferry.inspect, folder / name) for name in names}


def endless(framework: str) -> dict[str, Callable[[], object]]:
    """What ends with an error only."""
    arrays = [np.full(16, number, np.float32) for number in range(1000)]
    return {
        "share one by one": partial(held, ferry.to, arrays, [framework] * 1000),
        "copy one by one": partial(held, partial(ferry.to, copy=True), arrays, ["numpy"] * 1000),
    }


def main(framework: str, which: str, *limits: str) -> None:
    """Tries every operation under every limit, given in KiB; prints a line of JSON for each.

    Tries to read long headers, or as a control `torch.from_numpy`, until that ends the process.
    """
    with tempfile.TemporaryDirectory() as folder:
        # All that is imported or made once is there before there is a limit.
        for operation in operations(framework, 4).values():
            operation()
        if which == "headers":
            tried = long_headers(Path(folder))
            for operation in tried.values():
                operation()
        elif which == "control":
            import torch

            arrays = [np.full(16, number, np.float32) for number in range(1000)]
            tried = {"control": partial(held, torch.from_numpy, arrays)}
        else:
            tried = {**operations(framework, COUNT), **endless(framework)}
        ferry.empty_cache()
        fill()
        for name, operation in tried.items():
            for more in limits:
                outcome, stderr = attempt(operation, int(more) * KIB)
                print(json.dumps([name, int(more), outcome, stderr]), flush=True)
                if which == "control" and outcome.startswith("ended"):
                    return
