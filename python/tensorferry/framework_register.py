"""The frameworks that tensorferry knows, as the native module has registered them.

There is one table of names, modules, distributions, types and capabilities, and it is in Rust
(crates/python/src/frameworks/register.rs). This module gives Python code its rows.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from tensorferry._native import (
    FrameworkNotFoundError,
    InvalidArgumentError,
    _check_import,
    canonical,
    register,
)

#: The rows by canonical name, in an order in which one process can import the frameworks.
FRAMEWORKS = {row.name: row for row in register()}

#: The names of those that have dense tensors, in the same order.
TENSOR_FRAMEWORKS = tuple(name for name, row in FRAMEWORKS.items() if row.has_dense)


def tensor_framework(framework: str | ModuleType) -> str:
    """The canonical name of a framework of dense tensors, for any of its names or its module."""
    name = canonical(framework)
    if is_sparse_only(name):
        raise InvalidArgumentError(
            f"{title(name)} holds sparse tensors only"
            '\nhint: name a framework that holds dense ones, such as "numpy"'
        )
    return name


def is_sparse_only(name: str) -> bool:
    """Whether a framework holds sparse tensors and no dense ones."""
    return name in FRAMEWORKS and not FRAMEWORKS[name].has_dense


def title(name: str) -> str:
    """A framework as its makers write it."""
    return FRAMEWORKS[name].title if name in FRAMEWORKS else name


def load(framework: str, module: str | None = None) -> Any:
    """Imports a framework, or one of its modules."""
    row = FRAMEWORKS.get(framework) or FRAMEWORKS.get(canonical(framework))
    if row is None:
        raise InvalidArgumentError(
            f"{framework} was registered by a package and has no module to import"
            f"\nhint: write one of {', '.join(FRAMEWORKS)}"
        )
    name = module or row.module
    if name in sys.modules:
        return sys.modules[name]
    _check_import(name)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FrameworkNotFoundError(
            f"{row.title} cannot be imported here: {error}"
            f"\nhint: pip install {row.distributions[0]}"
        ) from error
