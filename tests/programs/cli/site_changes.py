"""Changes every interpreter when it starts. Tests install it as `sitecustomize`.

SITE_CHANGE names the function of this file that runs.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

# Longer than any test waits, so that the process hangs; it still ends by itself.
HANG_SECONDS = 3600


def hide_torch() -> None:
    """PyTorch cannot be imported."""
    sys.modules["torch"] = None  # type: ignore[assignment]


def hide_bases() -> None:
    """The arrays of `numpy.zeros` say that they have no base."""
    import numpy

    zeros = numpy.zeros

    class Odd(numpy.ndarray[Any, Any]):
        base = property(lambda self: None)

    numpy.zeros = lambda *given, **more: zeros(*given, **more).view(Odd)  # type: ignore[misc]


def replace_to(to: Callable[..., Any]) -> None:
    """Puts a function in the place of `ferry.to`, which is its first argument."""
    import tensorferry

    tensorferry.to = functools.partial(to, tensorferry.to)


def goes_from_mlx_to_numpy(x: Any, framework: object) -> bool:
    """Whether a conversion is the one that goes wrong."""
    return framework == "numpy" and "mlx" in type(x).__module__


def give_other_values() -> None:
    """Conversions from MLX to NumPy give other values."""

    def to(real: Any, x: Any, framework: Any, **options: Any) -> Any:
        y = real(x, framework, **options)
        return y + 1 if goes_from_mlx_to_numpy(x, framework) else y

    replace_to(to)


def harm(deed: Callable[[], object]) -> None:
    """Does something before each conversion from MLX to NumPy."""

    def to(real: Any, x: Any, framework: Any, **options: Any) -> Any:
        if goes_from_mlx_to_numpy(x, framework):
            deed()
        return real(x, framework, **options)

    replace_to(to)


CHANGES: dict[str, Callable[[], None]] = {
    "hide torch": hide_torch,
    "hide bases": hide_bases,
    "wrong values": give_other_values,
    "crash": lambda: harm(lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    "crash beside tensorflow": lambda: harm(
        lambda: os.abort() if "tensorflow" in sys.modules else None
    ),
    "hang": lambda: harm(lambda: time.sleep(HANG_SECONDS)),
}
CHANGES[os.environ["SITE_CHANGE"]]()
