"""The versions of frameworks that were tested, and warnings about others.

The installed package has no lock files, so the versions are repeated here; a test compares them
with requirements/ and, for CuPy, with the records of GPU runs.
"""

import re

from tensorferry._tools.doctor.findings import Problem
from tensorferry.framework_register import title

# The oldest supported and the newest tested version.
TESTED = {
    "numpy": ("2.0.0", "2.5.4"),
    "torch": ("2.6.0", "2.15.0"),
    "paddle": ("3.0.0", "3.3.1"),
    "cupy": ("14.2.0", "14.2.0"),
    "jax": ("0.5.0", "0.12.0.1"),
    "mlx": ("0.32.0", "0.32.4"),
    "tensorflow": ("2.18.1", "2.21.0"),
}


def warning(name: str, version: str | None) -> Problem | None:
    """A warning about a version that is older than the oldest or newer than the newest.

    A newer patch of the newest version is expected to work, as versions in between are.
    """
    if name not in TESTED or version is None or (found := _release(version)) is None:
        return None
    oldest, newest = TESTED[name]
    if found < (_release(oldest) or ()):
        return Problem(
            f"{title(name)} {version} is older than {oldest}, the oldest supported version",
            f"install {name} {oldest} or later",
        )
    if found[:2] > (_release(newest) or ())[:2]:
        return Problem(
            f"{title(name)} {version} is newer than {newest}, the newest tested version",
            f"if a conversion fails, install {name} {newest}, and please report it",
        )
    return None


def _release(version: str) -> tuple[int, ...] | None:
    """The numbers of a version, at least three: 2.15.0+cu132 is (2, 15, 0)."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    if numbers is None:
        return None
    parts = tuple(map(int, numbers[0].split(".")))
    return (*parts, *(0,) * (3 - len(parts)))
