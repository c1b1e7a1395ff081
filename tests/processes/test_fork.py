"""Used before and after `fork()`, it works in the child."""

from __future__ import annotations

import pytest
from support import subprocesses


def works(program: str, *arguments: str, threads: str = "4") -> None:
    """Runs a program to its last line, with as many helper threads."""
    shown = subprocesses.run_program(program, *arguments, TENSORFERRY_THREADS=threads)
    assert shown == "out\n"


def test_before_and_after():
    works("processes/fork_before_and_after.py")


@pytest.mark.parametrize("case", ["first_in_the_child", "many_children", "amid_copies"])
def test_children(case):
    works("processes/fork_cases.py", case)


@pytest.mark.parametrize("threads", ["1", "16"])
def test_one_thread_and_many(threads):
    works("processes/fork_cases.py", "one_child", threads=threads)


def test_a_child_that_ends_as_a_script_does():
    works("processes/fork_child_exits_as_a_script.py")


def test_a_fork_in_the_middle_of_the_first_call():
    works("processes/fork_amid_first_calls.py")


@pytest.mark.parametrize("target", ["torch", "paddle", "mlx", "jax"])
def test_other_frameworks_in_the_child(target):
    """Sharing needs none of the framework's threads, which the child does not have."""
    works("processes/fork_with_framework.py", target)


def test_loader_workers():
    works("processes/fork_loader_workers.py")


def test_spawn_and_forkserver():
    works("processes/spawn_children.py", "spawn", "forkserver")
