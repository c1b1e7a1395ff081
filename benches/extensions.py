"""What an argument of an extension module costs, beside rust-numpy, dlpark and `ferry.to`.

Nanoseconds are of one call with 16 float32 elements: a function in Rust that adds them up, with
each library's own argument, compiled into one module (`extension/`). Instructions are of `take` and
the release in C, and of `ferry.to(x, "numpy")`, by callgrind.
"""

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from array import array
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import child
import instructions
from table import Section, verdict

import tensorferry as ferry
from tensorferry._tools.bench.measure import interleave, make_timer

HERE = Path(__file__).parent
EXTENSION = HERE / "extension"
MODULE = "tensorferry_bench_extension"
# A folder with the compiled module, for machines without cargo.
COMPILED = "TENSORFERRY_BENCH_EXTENSIONS"
# What rust-numpy does not do, and may cost us: the kind of the tensor, and a second table.
NUMPY_LIMIT_NS = 300

# Of each row: the tensor, our function, the other one, and the nanoseconds that we may add.
CALLS = (
    ("numpy", "sum_view", "sum_rust_numpy", NUMPY_LIMIT_NS),
    ("numpy", "sum_view_1d", "sum_rust_numpy_1d", NUMPY_LIMIT_NS),
    ("numpy, not owner", "sum_view", "sum_rust_numpy", NUMPY_LIMIT_NS),
    ("numpy, not owner", "sum_view_1d", "sum_rust_numpy_1d", NUMPY_LIMIT_NS),
    ("torch", "sum_view", "sum_dlpark", 0),
    ("torch", "sum_view_1d", "sum_dlpark", 0),
)
COUNTED = ("numpy", "torch")


def tensor(name: str) -> Any:
    """The tensor of a row."""
    numbers = array("f", range(16))
    if name == "numpy":
        return ferry.to(numbers, name, copy=True).copy()
    # An array over memory of tensorferry's has a base.
    return ferry.to(numbers, name.partition(",")[0], copy=True)


def build_rust(folder: Path) -> ModuleType:
    """Compiles the module in Rust and imports it, or takes it from a folder."""
    if compiled := os.environ.get(COMPILED):
        return load(Path(compiled), MODULE)
    target = HERE.parent / "target" / "bench-extension"
    environment = {
        "PYO3_PYTHON": sys.executable,
        **os.environ,
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        "CARGO_TARGET_DIR": str(target),
    }
    command = ["cargo", "build", "--quiet", "--release", "--locked"]
    subprocess.run(command, cwd=EXTENSION, env=environment, check=True)
    shutil.copy(target / "release" / f"lib{MODULE}.so", folder / f"{MODULE}.abi3.so")
    return load(folder, MODULE)


def build_c(folder: Path) -> None:
    """Compiles the module in C."""
    command = ["gcc", "-O2", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    command += [f"-I{ferry.get_include()}", str(EXTENSION / "take.c")]
    subprocess.run([*command, "-o", str(folder / "take.abi3.so")], check=True)


def load(folder: Path, name: str) -> ModuleType:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def measure_calls(module: ModuleType, rounds: int) -> list[dict[str, Any]]:
    """Nanoseconds of each pair of functions."""
    rows = []
    for framework, ours, other, limit in CALLS:
        names = {"module": module, "x": tensor(framework)}
        codes = {name: f"module.{name}(x)" for name in (ours, other)}
        for code in codes.values():
            if (result := eval(code, names)) != sum(range(16)):
                raise AssertionError(f"{code} of {framework} is {result}")
        timers = {name: make_timer(code, names) for name, code in codes.items()}
        samples = interleave(timers, rounds=rounds, batch=0.001, budget=10)
        row = figures(samples[ours].median * 1e9, samples[other].median * 1e9, limit)
        rows.append({"tensor": framework, "ours": ours, "other": other, "unit": "ns", **row})
    return rows


def figures(ours: float, other: float, limit: float) -> dict[str, Any]:
    added = ours - other
    return {
        "ours cost": ours,
        "other cost": other,
        "added": added,
        "limit": limit,
        "verdict": verdict(added <= limit),
    }


def count(library: str, folder: str) -> None:
    """Runs all loops of instructions; called under callgrind."""
    module = load(Path(folder), "take")
    names = {"take": module.take, "ferry": ferry}
    jobs = {"nothing": instructions.loop(names, "pass")}
    for framework in COUNTED:
        scope = {**names, "x": tensor(framework)}
        jobs[f"{framework} take"] = instructions.loop(scope, "take(x)")
        jobs[f"{framework} to"] = instructions.loop(scope, 'ferry.to(x, "numpy")')
    instructions.count_jobs(library, jobs)


def count_instructions(folder: Path) -> list[dict[str, Any]]:
    """Instructions of `take` and of `ferry.to`."""
    build_c(folder)
    found = instructions.measure(folder, "extensions:count", str(folder))
    nothing = min(total for total, _ in found.pop("nothing"))
    costs = {
        name: (min(total for total, _ in turns) - nothing) / instructions.CALLS
        for name, turns in found.items()
    }
    return [
        {
            "tensor": framework,
            "ours": "take in C",
            "other": 'ferry.to(x, "numpy")',
            "unit": "instructions",
            **figures(costs[f"{framework} take"], costs[f"{framework} to"], 0),
        }
        for framework in COUNTED
    ]


def rows(quick: bool) -> list[dict[str, Any]]:
    """The rows in nanoseconds."""
    with tempfile.TemporaryDirectory() as folder:
        return measure_calls(build_rust(Path(folder)), 40 if quick else 200)


def run(quick: bool) -> dict[str, Any]:
    section = Section(
        "Arguments of extension modules, 16 float32 elements",
        {
            "tensor": "",
            "ours": "",
            "other": "",
            "unit": "",
            "ours cost": ",.0f",
            "other cost": ",.0f",
            "added": "+,.0f",
            "limit": ",.0f",
            "verdict": "",
        },
        notes=[
            "The functions in Rust add up the elements: `sum_view` over `TensorView`, "
            "`sum_rust_numpy` over `PyReadonlyArray`, `sum_dlpark` over an import of dlpark 0.10. "
            "Ours borrow the memory, and so does rust-numpy; dlpark does not. The first array "
            "of NumPy owns its memory; the other one has a base, and rust-numpy looks for its end."
        ],
    )
    section.rows = child.middle(
        "extensions:rows", quick, by=lambda row: row["added"], times=1 if quick else 3
    )
    if lacks := instructions.missing():
        section.notes.append(f"Instructions are not measured: {lacks}.")
    else:
        with tempfile.TemporaryDirectory() as folder:
            section.rows += count_instructions(Path(folder))
    return asdict(section)
