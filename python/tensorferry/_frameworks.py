"""Which frameworks are here, found without importing any of them."""

from __future__ import annotations

import sys
from typing import NamedTuple

from tensorferry._native import _builtin_frameworks, _registered_frameworks


class FrameworkInfo(NamedTuple):
    """One framework that `to` knows."""

    name: str
    """What to write in `ferry.to(x, name)`."""
    title: str
    """How the framework writes itself."""
    version: str | None
    """The installed version, or None where it is not installed (or was registered by somebody)."""
    installed: bool
    """Whether it can be imported."""
    loaded: bool
    """Whether this process has imported it."""


# Distributions that bring a framework under another name than its usual one.
_OTHER_PACKAGES = {
    "tensorflow": ("tensorflow-cpu", "tf-nightly", "tensorflow-intel"),
    "paddlepaddle": ("paddlepaddle-gpu",),
    "mlx": ("mlx-cpu", "mlx-cuda"),
}


def _version(package: str) -> str | None:
    from importlib import metadata

    for name in (package, *_OTHER_PACKAGES.get(package, ())):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def frameworks() -> list[FrameworkInfo]:
    """The frameworks that `to` knows, with what is installed and loaded. Imports none of them."""
    from importlib.util import find_spec

    found = []
    for name, title, module, package in _builtin_frameworks():
        top = module.partition(".")[0]
        loaded = module in sys.modules
        installed = loaded or find_spec(top) is not None
        version = _version(package) if installed else None
        found.append(FrameworkInfo(name, title, version, installed, loaded))
    found.extend(FrameworkInfo(name, name, None, True, True) for name in _registered_frameworks())
    return found
