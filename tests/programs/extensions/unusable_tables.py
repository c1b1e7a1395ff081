"""Calls the example extension in Rust where tensorferry is missing or has another table."""

import ctypes
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
from support.cases import case, main
from support.errors import raised

NAME = b"tensorferry._C_API"
HEAD_BYTES = 16
TABLE_BYTES = 48


def expect_import_error(folder: str, *expected: str) -> None:
    """Calls the extension, which must name the version or the cause, and what to do."""
    sys.path.insert(0, folder)
    example = __import__("tensorferry_example_pyo3")
    for _ in range(2):
        try:
            example.normalise(np.ones((2, 2), "float32"), 0.5)
        except ImportError as error:
            fact, hint = str(error).splitlines()
            assert all(words in fact for words in expected), fact
            assert hint.startswith("hint: pip install -U tensorferry"), hint
            assert (error.__cause__ is None) == ("version" in fact), error.__cause__
        else:
            raise AssertionError("the call must fail")


def install(table: ctypes.Array[ctypes.c_uint32]) -> None:
    """A module `tensorferry` with this table."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    module = ModuleType("tensorferry")
    module.__dict__["_C_API"] = make(ctypes.addressof(table), NAME, None)
    module.__dict__["memory"] = table
    sys.modules["tensorferry"] = module


def table(major: int, minor: int, size: int) -> ctypes.Array[ctypes.c_uint32]:
    """The head of a table, with nothing behind it that could be called."""
    return (ctypes.c_uint32 * (HEAD_BYTES // 4))(major, minor, size, 0)


@case
def not_installed(folder: str) -> None:
    sys.modules["tensorferry"] = None  # type: ignore[assignment]
    expect_import_error(folder, "needs tensorferry with a C table")


@case
def no_table(folder: str) -> None:
    sys.modules["tensorferry"] = ModuleType("tensorferry")
    expect_import_error(folder, "needs tensorferry with a C table")


@case
def other_major(folder: str) -> None:
    install(table(2, 5, TABLE_BYTES))
    expect_import_error(folder, "needs version 1.0", "the installed one is 2.5")


@case
def smaller_table(folder: str) -> None:
    install(table(1, 0, TABLE_BYTES - 8))
    expect_import_error(folder, "needs version 1.0", "the installed one is 1.0")


def package(folder: str, code: str) -> None:
    """A package `tensorferry` that is found before the real one."""
    made = Path(tempfile.mkdtemp()) / "tensorferry"
    made.mkdir()
    (made / "__init__.py").write_text(code)
    sys.path[:0] = [str(made.parent), folder]


def expect_the_error_of_the_import(folder: str, code: str, kind: type[BaseException]) -> None:
    package(folder, code)
    example = __import__("tensorferry_example_pyo3")
    error = raised(kind, example.normalise, np.ones((2, 2), "float32"), 0.5)
    assert type(error) is kind, error
    assert str(error) == "the cause", error


@case
def invalid_library(folder: str) -> None:
    expect_the_error_of_the_import(folder, "raise ImportError('the cause')", ImportError)


@case
def error_inside(folder: str) -> None:
    expect_the_error_of_the_import(folder, "raise RuntimeError('the cause')", RuntimeError)


@case
def interrupted(folder: str) -> None:
    expect_the_error_of_the_import(
        folder, "raise KeyboardInterrupt('the cause')", KeyboardInterrupt
    )


if __name__ == "__main__":
    main()
