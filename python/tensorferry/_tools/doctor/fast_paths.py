"""The fast paths that a child process has used, and merging the reports of several processes."""

import contextlib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

import tensorferry as ferry
from tensorferry._native import _fast_paths
from tensorferry._tools.doctor.findings import FastPath

# A state replaces states before it: a process that has not used a fast path knows nothing about it.
PRECEDENCE = ("unused", "active", "missing", "disabled", "failed")


def states() -> list[dict[str, str | None]]:
    """The state of each fast path in this process."""
    shown = ("name", "framework", "calls", "fallback", "state", "reason")
    return [{key: row[key] for key in shown} for row in _fast_paths()]


def exercise() -> None:
    """Uses the fast paths for tree nodes and sparse tensors, which the matrix does not need.

    Errors are ignored here, because a fast path records the failure of its own probe.
    """
    with contextlib.suppress(ferry.FerryError):
        ferry.to(Opaque(), "numpy")
    with contextlib.suppress(ferry.FerryError, ImportError):
        scipy: Any = importlib.import_module("scipy.sparse")
        sample = scipy.csr_array(importlib.import_module("numpy").eye(2, dtype="float32"))
        ferry.sparse.to(sample, "scipy", format="csc")
        if "jax" in sys.modules:
            ferry.to(sample, "jax")


class Opaque:
    """An object that is not a tensor, and may be a node of a tree."""


def merge(found: Iterable[FastPath]) -> list[FastPath]:
    """Each fast path once, with the state of the highest precedence."""
    kept: dict[str, FastPath] = {}
    for one in found:
        known = kept.setdefault(one.name, one)
        if PRECEDENCE.index(one.state) > PRECEDENCE.index(known.state):
            kept[one.name] = one
    return list(kept.values())
