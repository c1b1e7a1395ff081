"""The framework register: names, modules, distributions, types and capabilities.

The native module has the only table (crates/python/src/frameworks). This module provides its rows
to Python code.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from tensorferry._native import (
    FrameworkNotFoundError,
    InvalidArgumentError,
    Plan,
    _check_import,
    canonical,
    register,
)

#: The rows by canonical name, in an order in which one process can import the frameworks.
FRAMEWORKS = {row.name: row for row in register()}

#: The names of the frameworks that have dense tensors, in the same order.
TENSOR_FRAMEWORKS = tuple(name for name, row in FRAMEWORKS.items() if row.has_dense)


def tensor_framework(framework: str | ModuleType) -> str:
    """The canonical name of a framework that has dense tensors, for its module or any name."""
    name = canonical(framework)
    if is_sparse_only(name):
        raise InvalidArgumentError(
            f"{title(name)} holds sparse tensors only"
            '\nhint: name a framework that has dense tensors, such as "numpy"'
        )
    return name


def is_sparse_only(name: str) -> bool:
    """Whether a framework has sparse tensors only."""
    return name in FRAMEWORKS and not FRAMEWORKS[name].has_dense


def source_framework(plan: Plan) -> str | None:
    """The framework of a plan's source: NumPy for host memory that is read through a protocol.

    Trees have none.
    """
    if plan.kind == "tree":
        return None
    try:
        if tensor_framework(plan.source) == plan.source:
            return plan.source
    except InvalidArgumentError:
        pass
    return "numpy" if plan.kind == "tensor" and plan.source_device == "cpu" else None


def variable_value(x: Any) -> Any:
    """The tensor of a Keras variable; other objects unchanged."""
    keras_variable = getattr(sys.modules.get("keras"), "Variable", ())
    return x.value if isinstance(x, keras_variable) else x


def title(name: str) -> str:
    """The title of a framework, as its authors write it."""
    return FRAMEWORKS[name].title if name in FRAMEWORKS else name


def load(framework: str, module: str | None = None) -> Any:
    """Imports a framework, or one of its modules."""
    row = FRAMEWORKS.get(framework) or FRAMEWORKS.get(canonical(framework))
    if row is None:
        raise InvalidArgumentError(
            f"{framework} was registered by a package and cannot be imported by name"
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
