"""`ferry.namespace(*xs)`: the Array API namespace of the tensors that came in.

Whose a tensor is, its type's name and module tell, so nothing is imported to find out. NumPy, CuPy,
PyTorch and JAX are served by array-api-compat, TensorFlow by `tensorferry.tensorflow_arrays`, and
whoever has `__array_namespace__` by that. A namespace is imported when it is first asked for.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from tensorferry._native import InvalidArgument

__all__ = ["namespace"]

_IGNORED = frozenset({bool, int, float, complex, type(None)})

#: What the classes of tensors are called, and by which framework; more than one for some.
_CLASSES = {
    ("numpy", "ndarray"): "numpy",
    ("numpy", "generic"): "numpy",
    ("torch", "Tensor"): "torch",
    ("jax", "Array"): "jax",
    ("jax._src.core", "Tracer"): "jax",
    ("tensorflow.python.framework.tensor", "Tensor"): "tensorflow",
    ("tensorflow.python.ops.variables", "Variable"): "tensorflow",
    ("paddle", "Tensor"): "paddle",
    ("mlx.core", "array"): "mlx",
}

#: What looks like a tensor of a framework and does not behave like one.
_REFUSED = {
    ("numpy.ma", "MaskedArray"): "a masked array, whose mask the functions would lose",
    ("numpy.ma.core", "MaskedArray"): "a masked array, whose mask the functions would lose",
    ("tensorflow.python.ops.ragged.ragged_tensor", "RaggedTensor"): "a ragged tensor",
    ("tensorflow.python.framework.sparse_tensor", "SparseTensor"): "a sparse tensor",
    ("tensorflow.python.framework.indexed_slices", "IndexedSlices"): "IndexedSlices",
    ("jax.experimental.sparse._base", "JAXSparse"): "a sparse JAX array",
    ("scipy.sparse._base", "_spbase"): "a SciPy sparse array",
}

_MODULES = {
    "numpy": "array_api_compat.numpy",
    "cupy": "array_api_compat.cupy",
    "torch": "array_api_compat.torch",
    "jax": "jax.numpy",
    "tensorflow": "tensorferry.tensorflow_arrays",
}

SAME_FOR_ALL = frozenset(_MODULES)


def namespace(*xs: Any) -> Any:
    """The Array API namespace of the tensors among the arguments, all of one framework.

        xp = ferry.namespace(x, y)
        z = xp.exp(x - xp.max(x, axis=-1, keepdims=True))

    Python scalars and None are passed over.

    Raises:
        InvalidArgument: They are of several frameworks, none of them is a tensor, or theirs has no
            namespace.
    """
    found: str | None = None
    for x in xs:
        kind: Any = type(x)
        if kind in _IGNORED:
            continue
        framework = _framework(kind)
        if found is None:
            found, first = framework, x
        elif framework != found:
            raise _mixed(xs)
    if found is None:
        raise InvalidArgument(
            "namespace was given no tensor\nhint: pass one at least: ferry.namespace(x)"
        )
    return _namespace(found) if found in _MODULES else _own(found, first)


@functools.lru_cache(maxsize=512)
def _framework(kind: Any) -> str:
    """Whose tensors are of a type; for frameworks not known here, where the type is from."""
    for base in kind.__mro__:
        name = base.__module__, base.__name__
        if name in _REFUSED:
            raise InvalidArgument(
                f"namespace was given {_REFUSED[name]}\nhint: pass a dense tensor"
            )
        if name in _CLASSES:
            return _CLASSES[name]
        root = name[0].partition(".")[0]
        if (root, name[1]) in (("cupy", "ndarray"), ("jax", "ArrayImpl"), ("jaxlib", "ArrayImpl")):
            return "cupy" if root == "cupy" else "jax"
    if hasattr(kind, "__array_namespace__"):
        return str(kind.__module__).partition(".")[0]
    raise InvalidArgument(
        f"namespace was given {kind.__module__}.{kind.__qualname__}, which is no tensor\n"
        "hint: pass tensors, Python scalars and None; parts of containers one by one"
    )


@functools.cache
def _namespace(framework: str) -> Any:
    return importlib.import_module(_MODULES[framework])


def _own(framework: str, x: Any) -> Any:
    """What a tensor itself says its namespace is."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    raise InvalidArgument(
        f"the tensors of {framework} have no Array API namespace\n"
        'hint: carry them to a framework that has one, such as ferry.to(x, "torch")'
    )


def _mixed(xs: tuple[Any, ...]) -> InvalidArgument:
    kinds: list[Any] = [type(x) for x in xs if type(x) not in _IGNORED]
    names = dict.fromkeys(map(_framework, kinds))
    return InvalidArgument(
        f"namespace was given tensors of {' and '.join(names)}\n"
        "hint: carry them to one framework with ferry.to, or decorate the function with "
        "@ferry.agnostic"
    )
