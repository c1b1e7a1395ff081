"""Memory that runs out is an error with a hint, and never the end of the process.

Each operation runs in a child whose address space is limited to what it uses and some more
(support/limits.py). One way to end is PyTorch's own: it throws `std::bad_alloc` or
`c10::OutOfMemoryError` where its code allows no exception, if there is no memory for a small object
of its own. C++ then says so on stderr and aborts. Rust says "memory allocation of ... failed",
glibc "double free", and a crash is another signal, so that none of these is taken for it.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any

import numpy as np
import pytest
from support import capsules, subprocesses

import tensorferry as ferry

LIMITS_KIB = (0, 3 << 10, 7 << 10, 12 << 10, 20 << 10, 200 << 10)

# They take little, whatever the tensor's size.
SMALL = {"share one", "plan one", "print a plan"}

# They end with an error only; the list that the test keeps may be what finds no memory.
ENDLESS = {"share one by one", "copy one by one"}

ABORTED = f"ended by signal {signal.SIGABRT.value}"

# What the C++ runtime prints before it aborts for an exception that nothing may catch. The name of
# the class stays mangled where there is no memory to make it readable, and the text of the
# exception is not printed where that fails too.
UNCAUGHT = re.compile(
    r"terminate called after throwing an instance of "
    r"'(std::bad_alloc|St9bad_alloc|c10::OutOfMemoryError|N3c1016OutOfMemoryErrorE)'\n"
    r"(  what\(\):  .*\n|terminate called recursively\n)?",
    re.DOTALL,
)


def is_pytorchs(outcome: str, stderr: str) -> bool:
    """Whether C++ has ended the process, for an exception that says that memory ran out."""
    return outcome == ABORTED and UNCAUGHT.fullmatch(stderr) is not None


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("'std::bad_alloc'\n  what():  std::bad_alloc\n", True),
        ("'St9bad_alloc'\n  what():  std::bad_alloc\n", True),
        ("'c10::OutOfMemoryError'\nterminate called recursively\n", True),
        ("'std::logic_error'\n  what():  wrong\n", False),
        ("'std::bad_alloc'\ndouble free or corruption\n", False),
    ],
)
def test_only_exceptions_about_memory_are_pytorchs(stderr: str, expected: bool) -> None:
    """Other exceptions, and what glibc says, are failures."""
    text = f"terminate called after throwing an instance of {stderr}"
    assert is_pytorchs(ABORTED, text) is expected


def tried(*arguments: str) -> list[tuple[str, int, str, str]]:
    """What became of the operations, each with its limit, outcome and stderr."""
    # Each further arena of malloc's would have 64 MiB that no limit counts.
    done = subprocesses.attempt_program(
        "processes/operations_under_limits.py", *arguments, MALLOC_ARENA_MAX="1"
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[str, int, str, str]]:
    """All operations under all limits."""
    return tried("torch", "all", *map(str, LIMITS_KIB))


def test_every_operation_succeeds_or_says_that_memory_ran_out(outcomes) -> None:
    """Trees and single tensors: shared, copied, planned, published, attached and traced."""
    wrong = []
    for name, more, outcome, stderr in outcomes:
        right = outcome in ("success", "out of memory") and stderr == ""
        if name in ENDLESS:
            right |= outcome == "Python's MemoryError"
        if name == "share one by one":
            right |= is_pytorchs(outcome, stderr)
        if not right:
            wrong.append((name, more, outcome, stderr))
    assert wrong == []


def test_every_operation_meets_both_ends(outcomes) -> None:
    """Otherwise the limits were none."""
    names = {name for name, *_ in outcomes}
    good = {name for name, _, outcome, _ in outcomes if outcome == "success"}
    bad = {name for name, _, outcome, _ in outcomes if outcome == "out of memory"}
    assert good == names - ENDLESS
    assert names - SMALL - ENDLESS <= bad


def test_headers_that_find_no_memory() -> None:
    """Those of a MiB, of .npy and .npz files and of safetensors, and an index of shards."""
    found = tried("numpy", "headers", "512", str(1 << 20))
    assert len(found) == 8
    for name, more, outcome, stderr in found:
        expected = "out of memory" if more == 512 else "success"
        assert (outcome, stderr) == (expected, ""), (name, more)


def test_pytorch_alone_runs_out_of_memory_too() -> None:
    """What is accepted above is PyTorch's: `torch.from_numpy` alone meets it too.

    Which of its allocations fails depends on the state of the heap. Some end the process, others
    raise a RuntimeError.
    """
    steps = (str(1536 + 4 * step) for step in range(64))
    found = tried("torch", "control", *steps)
    met = [
        is_pytorchs(outcome, stderr) or (outcome == "other error" and "std::bad_alloc" in stderr)
        for _, _, outcome, stderr in found
    ]
    assert any(met), found


class Late:
    """What a consumer gives for a capsule that it has released and not taken."""


def released_but_not_taken(parcel: Any) -> Late:
    """Fails to import a tensor after it has released it, as PyTorch does without memory."""
    capsules.release(parcel.__dlpack__(max_version=(1, 0)))
    raise MemoryError("no memory for the consumer's own object")


def test_a_consumer_that_releases_a_tensor_and_fails() -> None:
    """The owner is released once, and the capsule is of no use any more."""
    ferry.register_framework(
        "late", types=[Late], read=None, write=released_but_not_taken, alignment=4
    )
    source = np.arange(6, dtype=np.float32)
    before = sys.getrefcount(source)
    for _ in range(100):
        with pytest.raises(ferry.OutOfMemoryError) as caught:
            ferry.to(source, "late")
        assert caught.value.hint
        del caught
    assert sys.getrefcount(source) == before
