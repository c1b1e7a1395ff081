"""What tensors in files cost, the page cache warm, against NumPy, safetensors and torch.

- map: the call alone, which reads no element;
- touch: the call, and one byte of every page of the result read;
- read: the same for results that are memory of their own, which are dropped or all kept;
- save: to a name that is new, and to one that is taken. Ours has by default reached the disk when
  it returns, which the others have with an fsync alone: like is held against like.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from table import Section, verdict

from tensorferry._tools.bench.measure import Timer, interleave, interleave_cold, make_timer
from tensorferry._tools.bench.timings import Timing, quickest

MIB = 1 << 20
PAGE = 4096
# What a map may cost more than NumPy's.
MAP_MORE = 20e-6

# Each by what it gives: a map, or memory of its own.
MAPS = {
    "npy": {
        "numpy": 'ferry.load(npy, "numpy")',
        "torch": 'ferry.load(npy, "torch")',
    },
    "safetensors": {
        "numpy": 'ferry.load(tensors, "numpy", names="x")',
        "torch": 'ferry.load(tensors, "torch", names="x")',
    },
}
NATIVE_MAP = 'np.load(npy, mmap_mode="r")'
TOUCHED = (
    'touch(np.load(npy, mmap_mode="r"))',
    'touch(safetensors_torch.load_file(tensors)["x"])',
    "touch(torch.load(pickled, mmap=True))",
)
READ = (
    "touch(np.load(npy))",
    'touch(safetensors_numpy.load_file(tensors)["x"])',
    "touch(torch.load(pickled))",
)
SAVES = {
    "npy": "ferry.save(folder + '/new.npy', x, durable=DURABLE)",
    "safetensors": "ferry.save(folder + '/new.safetensors', {'x': x}, durable=DURABLE)",
}
NATIVE_SAVES = (
    "np.save(theirs, x)",
    "safetensors_numpy.save_file({'x': x}, theirs)",
    "torch.save(t, theirs)",
)


def namespace(folder: str, size: int) -> dict[str, Any]:
    """What the jobs are written with; the files are there, in the page cache."""
    import safetensors.numpy
    import safetensors.torch
    import torch

    import tensorferry as ferry

    x = np.random.default_rng(7).integers(0, 255, size, dtype=np.uint8).view(np.float32)
    names = {
        "np": np,
        "ferry": ferry,
        "torch": torch,
        "folder": folder,
        "x": x,
        "t": torch.from_numpy(x),
        "touch": touch,
        "safetensors_numpy": safetensors.numpy,
        "safetensors_torch": safetensors.torch,
        "npy": f"{folder}/x.npy",
        "tensors": f"{folder}/x.safetensors",
        "pickled": f"{folder}/x.pt",
        "theirs": f"{folder}/new.theirs.npy",
    }
    np.save(names["npy"], x)
    safetensors.numpy.save_file({"x": x}, names["tensors"])
    torch.save(names["t"], names["pickled"])
    os.sync()
    return names


def touch(x: Any) -> Any:
    """Reads a byte of every page, and gives the tensor back."""
    array = x if isinstance(x, np.ndarray) else x.numpy()
    int(array.view(np.uint8)[::PAGE].max())
    return x


def check(code: str, names: dict[str, Any]) -> None:
    found = np.asarray(eval(code, names))
    if not np.array_equal(found.view(np.uint32), names["x"].view(np.uint32)):
        raise AssertionError(f"{code} gives other values")


def row(job: str, ours: Timing, native: dict[str, Timing], more: float = 0) -> dict[str, Any]:
    """`more` is what ours may take more than the best native way."""
    best = quickest(native)
    theirs = native[best].median
    return {
        "job": job,
        "ms": ours.median * 1e3,
        "native ms": theirs * 1e3,
        "ratio": ours.median / theirs,
        "target": f"{more * 1e6:.0f} us more" if more else "1.00",
        "verdict": verdict(ours.median <= theirs + more),
        "best native": best,
    }


def loads(names: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    rows = []
    for format, targets in MAPS.items():
        for framework, code in targets.items():
            check(code, names)
            jobs = {each: make_timer(each, names) for each in (code, NATIVE_MAP)}
            found = interleave(jobs, rounds=rounds * 5, batch=0.005, budget=5)
            ours = found.pop(code)
            rows.append(row(f"map, {format} to {framework}", ours, found, MAP_MORE))
    for title, natives, mmap in (
        ("touch", TOUCHED, True),
        ("read, dropped", READ, False),
        ("read, kept", READ, False),
    ):
        for format, targets in MAPS.items():
            for framework, code in targets.items():
                touched = f"touch({code[:-1]}, mmap={mmap}))"
                for each in (touched, *natives):
                    check(each, names)
                jobs = {each: make_timer(each, names) for each in (touched, *natives)}
                if title == "read, kept":
                    # Memory that an earlier result left is not there when all are kept.
                    jobs[touched] = trimmed(jobs[touched], names["ferry"])
                found = interleave_cold(jobs, rounds=rounds)
                ours = found.pop(touched)
                rows.append(row(f"{title}, {format} to {framework}", ours, found))
    return rows


def trimmed(job: Timer, ferry: Any) -> Timer:
    """The same in a process that holds no memory of earlier results."""

    def timed(calls: int) -> float:
        ferry.empty_cache()
        return job(calls)

    return timed


def saving(code: str, names: dict[str, Any], *, anew: bool, sync: bool) -> Timer:
    """Runs a save; nothing is left to be written when the clock starts."""
    run = make_timer(code + ("; sync(theirs)" if sync else ""), {**names, "sync": _sync})

    def timed(calls: int) -> float:
        for path in Path(names["folder"]).glob("new*") if anew else ():
            path.unlink()
        os.sync()
        return run(calls)

    return timed


def _sync(file: str) -> None:
    """Waits for the disk to have the file and its name."""
    for path in (file, os.path.dirname(file)):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def saves(names: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    rows = []
    for anew in (True, False):
        for durable in (True, False):
            ours = {name: code.replace("DURABLE", str(durable)) for name, code in SAVES.items()}
            for format, code in ours.items():
                exec(code, names)
                check(f"ferry.load(folder + '/new.{format}', names={_name(format)})", names)
            jobs = {
                code: saving(code, names, anew=anew, sync=durable and code in NATIVE_SAVES)
                for code in (*ours.values(), *NATIVE_SAVES)
            }
            found = interleave_cold(jobs, rounds=rounds)
            native = {code: found[code] for code in NATIVE_SAVES}
            for format, code in ours.items():
                what = "new" if anew else "over an old file"
                what += ", on the disk" if durable else ""
                rows.append(row(f"save, {format}, {what}", found[code], native))
    return rows


def _name(format: str) -> str:
    return "None" if format == "npy" else "'x'"


def run(quick: bool) -> dict[str, Any]:
    size = (64 if quick else 1024) * MIB
    section = Section(
        f"Files of {size // MIB} MiB, page cache warm",
        {
            "job": "",
            "ms": ",.3f",
            "native ms": ",.3f",
            "ratio": ".2f",
            "target": "",
            "verdict": "",
            "best native": "",
        },
        notes=["On the disk: ours as it is by default, the native saves with an fsync behind."],
    )
    with tempfile.TemporaryDirectory() as folder:
        names = namespace(folder, size)
        parts: tuple[tuple[Callable[..., Any], int], ...] = ((loads, 7), (saves, 3 if quick else 5))
        for part, rounds in parts:
            section.rows += part(names, rounds)
    return asdict(section)
