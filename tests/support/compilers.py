"""Extension modules that tests build: in C, in C++ with nanobind or pybind11, and in Cython."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import tensorferry as ferry

# Warnings are errors: the header and the examples compile cleanly in every language.
_WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    "-Werror",
)


def build(source: Path, module: str, folder: Path) -> Path:
    """Compiles a source file to an extension module in a folder, by its suffix."""
    include = ["-I", sysconfig.get_paths()["include"], "-I", ferry.get_include()]
    built = folder / f"{module}.so"
    shared = ["-shared", "-fPIC", "-O1", "-fvisibility=hidden", *include]
    if source.suffix == ".pyx":
        generated = folder / f"{module}.c"
        _run(sys.executable, "-m", "cython", "-3", str(source), "-o", str(generated))
        # What Cython writes is its own affair.
        _run("cc", *shared, str(generated), "-o", str(built))
    elif source.suffix == ".c":
        _run("cc", "-std=c11", "-pedantic", *_WARNINGS, *shared, str(source), "-o", str(built))
    else:
        sources = [*_cpp_library(source), str(source)]
        _run("c++", "-std=c++17", *_WARNINGS, *shared, *sources, "-o", str(built))
    return built


def _cpp_library(source: Path) -> list[str]:
    """The include paths, and the sources, of the library that a file includes."""
    if "pybind11" in source.read_text():
        import pybind11

        return ["-isystem", pybind11.get_include()]
    import nanobind

    base = Path(nanobind.include_dir()).parent
    robin_map = base / "ext" / "robin_map" / "include"
    include = ["-isystem", str(base / "include"), "-isystem", str(robin_map)]
    return [*include, "-fno-strict-aliasing", str(base / "src" / "nb_combined.cpp")]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
