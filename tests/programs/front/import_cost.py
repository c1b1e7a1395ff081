"""Prints how many modules `import tensorferry` adds and how many functions it calls."""

from __future__ import annotations

import sys
from types import FrameType

before, calls = set(sys.modules), 0


def count(frame: FrameType, event: str, argument: object) -> None:
    """Counts calls of Python and C functions."""
    global calls
    calls += event in ("call", "c_call")


sys.setprofile(count)
import tensorferry  # noqa: E402, F401

sys.setprofile(None)
made = set(sys.modules) - before
others = {name.partition(".")[0] for name in made} - sys.stdlib_module_names - {"tensorferry"}
assert not others, others
print(len(made), calls)
