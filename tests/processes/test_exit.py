"""At interpreter exit nothing crashes, hangs or complains, whoever still holds what."""

from __future__ import annotations

import signal

import pytest
from support.refusals import TARGETS
from support.subprocesses import attempt_program, run_program

# Each pair is in one of these; an import of TensorFlow costs as much as a hundred other tests.
GROUPS = (
    ("numpy", "torch"),
    ("numpy", "jax"),
    ("numpy", "mlx"),
    ("numpy", "paddle"),
    ("numpy", "tensorflow"),
    ("torch", "jax", "mlx"),
    TARGETS,
)


@pytest.mark.parametrize("names", GROUPS, ids="-".join)
def test_shares_that_are_held_at_exit(names):
    assert run_program("processes/exit_with_shares_held.py", *names) == "out\n"


def test_a_release_that_has_begun_is_waited_for():
    """It would come back to an interpreter that unwinds it, through C++ that cannot be unwound."""
    assert run_program("processes/exit_waits_for_a_release.py") == "out\nreleased\nexit\n"


def test_the_first_call_comes_while_python_is_taken_apart():
    assert run_program("processes/exit_with_first_calls.py") == "out\n"


# Holders that outlive Python itself: C code that releases after, or while, the interpreter ends.
NATIVE = "processes/exit_with_native_holders.py"


def test_c_lets_go_after_python_is_gone():
    assert run_program(NATIVE, "after_python") == "out\n"


def test_a_thread_without_python_lets_go():
    assert run_program(NATIVE, "without_python") == "out\n"


@pytest.mark.parametrize("start", ["0.001", "0.02", "0.05"])
def test_threads_release_while_python_exits(start):
    assert run_program(NATIVE, "while_python_exits", start) == "out\n"


def test_torch_statics_at_exit():
    done = attempt_program("processes/exit_with_torch_statics.py")
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr


def test_compiled_constants_at_exit():
    assert run_program("processes/exit_with_compiled_constants.py") == "out\n"


@pytest.mark.parametrize(
    ("way", "status"), [("sys.exit", 0), ("os._exit", 0), ("SIGTERM", -signal.SIGTERM)]
)
def test_other_ways_out(way, status):
    done = attempt_program("processes/exit_amid_a_copy.py", way)
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\n", "")


def test_an_error_on_the_way_out_is_told_as_usual():
    done = attempt_program("processes/exit_with_an_error.py")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("hint: make a tensor of it first: numpy.asarray(x)")


@pytest.mark.parametrize("order", ["main first", "main last"])
def test_subinterpreters_get_an_import_error(order):
    assert run_program("processes/import_in_subinterpreters.py", order) == "out\n"
