"""Whose sparse tensor it is: a module for each framework, the same functions in each.

`ARRAYS` is the framework whose dense arrays its sparse tensors are made of, `TITLE` its name in
sentences. `formats()` says what each format of the framework asks for, `read(x)` takes a tensor
apart, `write(bundle)` puts one together, `scatter(bundle)` makes a dense tensor on a GPU.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from tensorferry._native import FrameworkMissing, InvalidArgument

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

TORCH_LAYOUTS = frozenset(f"torch.sparse_{name}" for name in ("coo", "csr", "csc", "bsr", "bsc"))


def owner(x: Any) -> str | None:
    """Whose sparse tensor it is, by its type; None if it is none. Imports nothing."""
    for kind in type(x).__mro__:
        module, name = kind.__module__, kind.__name__
        if name == "Tensor" and module in ("torch", "torch._tensor"):
            return "torch" if str(x.layout) in TORCH_LAYOUTS else None
        for framework, (_, classes, _) in TABLE.items():
            for root, known in classes:
                if name == known and (module == root or module.startswith(root + ".")):
                    return framework
    return None


def named(framework: str | ModuleType) -> str | None:
    """Which of the table is meant; None where the framework has no sparse tensors."""
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
    return import_module(f"{__name__}.{TABLE[framework][0]}")


def library(name: str, package: str) -> Any:
    """A framework's own module, which is imported because it was asked for by name."""
    if name in sys.modules:
        return sys.modules[name]
    try:
        return import_module(name)
    except ImportError as error:
        raise FrameworkMissing(
            f"{name} cannot be imported here: {error}\nhint: pip install {package}"
        ) from error
