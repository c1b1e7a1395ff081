"""Whose sparse tensor it is: a module for each framework, the same functions in each.

`ARRAYS` is the framework whose dense arrays its sparse tensors are made of, `TITLE` its name in
sentences. `formats()` says what each format of the framework asks for, `read(x)` takes a tensor
apart, `write(bundle)` puts one together, `scatter(bundle)` makes a dense tensor on a GPU. For plain
trips, `OPENS` has the format of each class (or layout) and what takes a simple tensor of it apart,
and `WRITES` what puts each format together.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

from tensorferry._native import canonical, classify, classify_type
from tensorferry.framework_register import FRAMEWORKS

#: The frameworks that have sparse tensors.
NAMES = tuple(name for name, row in FRAMEWORKS.items() if row.has_sparse)

# Our module for a framework, where it is not called like the framework: a file `sparse.py` would
# shadow the package.
_FILES = {"sparse": "pydata"}

# What was found out about names.
_NAMES: dict[Any, str | None] = {}
_MODULES: dict[str, Any] = {}


def owner(x: Any) -> str | None:
    """The framework of a sparse tensor; None for anything else. Imports nothing."""
    found = classify(x)
    return found[0] if found is not None and found[1] == "sparse" else None


def exact_owner(kind: type) -> str | None:
    """The framework of a type of tensors, if the framework itself has defined it."""
    found = classify_type(kind)
    if found is None or found[0] not in NAMES:
        return None
    root = kind.__module__.partition(".")[0]
    return found[0] if root in (found[0], "cupyx") else None


def named(framework: str | ModuleType) -> str | None:
    """The framework of sparse tensors that is meant; None where the framework has none."""
    try:
        return _NAMES[framework]
    except (KeyError, TypeError):
        name = canonical(framework)
    found = name if name in NAMES else None
    _NAMES[framework] = found
    return found


def module_of(framework: str) -> Any:
    """Our module for a framework."""
    if framework not in _MODULES:
        _MODULES[framework] = import_module(f"{__name__}.{_FILES.get(framework, framework)}")
    return _MODULES[framework]
