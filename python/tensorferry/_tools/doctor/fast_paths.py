"""The fast paths that a child has used, and what several children say about them."""

import contextlib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

import tensorferry as ferry
from tensorferry._native import _fast_paths
from tensorferry._tools.doctor.findings import FastPath

# What one child says replaces what another says, if it comes later here: a child that has not used
# a fast path knows nothing about it.
PRECEDENCE = ("unused", "active", "missing", "disabled", "failed")


def states() -> list[dict[str, str | None]]:
    """What has become of each in this process."""
    shown = ("name", "framework", "calls", "fallback", "state", "reason")
    return [{key: row[key] for key in shown} for row in _fast_paths()]


def exercise() -> None:
    """Uses those that dense tensors do not need: for nodes of trees, and for sparse tensors.

    An error here says nothing about a fast path: a probe that fails is recorded and raises nothing.
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
    """An object that is not a tensor, so that it may be a node of a tree."""


def merge(found: Iterable[FastPath]) -> list[FastPath]:
    """Each fast path once, as the child says that knows most about it."""
    kept: dict[str, FastPath] = {}
    for one in found:
        known = kept.setdefault(one.name, one)
        if PRECEDENCE.index(one.state) > PRECEDENCE.index(known.state):
            kept[one.name] = one
    return list(kept.values())
