"""Whose sparse tensor it is: a module for each framework, the same functions in each.

`ARRAYS` is the framework whose dense arrays its sparse tensors are made of, `TITLE` its name in
sentences. `formats()` says what each format of the framework asks for, `read(x)` takes a tensor
apart, `write(bundle)` puts one together, `scatter(bundle)` makes a dense tensor on a GPU. For plain
trips, `OPENS` has the format of each class (or layout) and what takes a simple tensor of it apart,
and `WRITES` what puts each format together.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from tensorferry._native import FrameworkMissing, InvalidArgument, _check_import

# Each framework's module here, the classes from which its sparse tensors descend, and the names
# that it goes by. Classes are known by where they were defined, which imports nothing.
TABLE: dict[str, tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]]] = {
    "scipy": (
        "scipy",
        (("scipy.sparse", "_spbase"), ("scipy.sparse", "spmatrix"), ("scipy.sparse", "sparray")),
        ("scipy", "scipy.sparse", "numpy", "np"),
    ),
    "torch": ("torch", (), ("torch", "pytorch")),
    "cupy": (
        "cupy",
        (("cupyx.scipy.sparse", "spmatrix"), ("cupyx.scipy.sparse", "_spbase")),
        ("cupy", "cupyx", "cupyx.scipy.sparse"),
    ),
    "jax": (
        "jax",
        (("jax.experimental.sparse", "JAXSparse"),),
        ("jax", "jnp", "jax.numpy", "jax.experimental.sparse"),
    ),
    "tensorflow": (
        "tensorflow",
        (("tensorflow.python.framework.sparse_tensor", "SparseTensor"),),
        ("tensorflow", "tf", "tensorflow.sparse", "tf.sparse"),
    ),
    "sparse": ("pydata", (("sparse", "SparseArray"),), ("sparse", "pydata")),
}

# As for dense tensors: whether frameworks are entered by what they document alone.
ONLY_PUBLIC_DOORS = os.environ.get("TENSORFERRY_PUBLIC_DOORS", "").strip() == "1"

TORCH_LAYOUTS = frozenset(f"torch.sparse_{name}" for name in ("coo", "csr", "csc", "bsr", "bsc"))


# What was found out about types and names; PyTorch's types say nothing of their layout.
_OWNERS: dict[type, str | None] = {}
_NAMES: dict[Any, str | None] = {}
_MODULES: dict[str, Any] = {}


def owner(x: Any) -> str | None:
    """Whose sparse tensor it is, by its type; None if it is none. Imports nothing."""
    kind = type(x)
    if kind not in _OWNERS:
        _OWNERS[kind] = _owner_of(kind)
    found = _OWNERS[kind]
    if found != "torch":
        return found
    return "torch" if str(x.layout) in TORCH_LAYOUTS else None


def exact_owner(kind: type) -> str | None:
    """Whose class it is, if the framework itself has defined it."""
    found = _owner_of(kind)
    root = kind.__module__.partition(".")[0]
    return found if root in (found, "cupyx") else None


def _owner_of(kind: type) -> str | None:
    for base in kind.__mro__:
        module, name = base.__module__, base.__name__
        if name == "Tensor" and module in ("torch", "torch._tensor"):
            return "torch"
        for framework, (_, classes, _) in TABLE.items():
            for root, known in classes:
                if name == known and (module == root or module.startswith(root + ".")):
                    return framework
    return None


def named(framework: str | ModuleType) -> str | None:
    """Which of the table is meant; None where the framework has no sparse tensors."""
    try:
        return _NAMES[framework]
    except (KeyError, TypeError):
        found = _named(framework)
    _NAMES[framework] = found
    return found


def _named(framework: str | ModuleType) -> str | None:
    name = framework if isinstance(framework, str) else getattr(framework, "__name__", None)
    if not isinstance(name, str):
        raise InvalidArgument(
            f"{framework!r} is no framework\nhint: write one of {', '.join(TABLE)}"
        )
    lower = name.lower()
    for framework_name, (_, _, names) in TABLE.items():
        if lower in names or (lower.endswith("api.v2.sparse") and framework_name == "tensorflow"):
            return framework_name
    return None


def module_of(framework: str) -> Any:
    """Our module for a framework."""
    if framework not in _MODULES:
        _MODULES[framework] = import_module(f"{__name__}.{TABLE[framework][0]}")
    return _MODULES[framework]


def library(name: str, package: str) -> Any:
    """A framework's own module, which is imported because it was asked for by name."""
    if name in sys.modules:
        return sys.modules[name]
    _check_import(name)
    try:
        return import_module(name)
    except ImportError as error:
        raise FrameworkMissing(
            f"{name} cannot be imported here: {error}\nhint: pip install {package}"
        ) from error
