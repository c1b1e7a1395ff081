"""`ferry.array_namespace(*xs)`: the Array API namespace of tensors.

The framework register has the framework of a type, so nothing is imported to find it, and the
module of its namespace: one of array-api-compat for most frameworks, and
`tensorferry.array_api.tensorflow` for TensorFlow. Other tensors provide `__array_namespace__`. A
namespace is imported when it is first needed.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from tensorferry._native import (
    FerryError,
    InvalidArgumentError,
    _is_refused,
    classify_type,
    plan,
    register,
)
from tensorferry.framework_register import source_framework, variable_value

__all__ = ["array_namespace"]

_IGNORED_TYPES = frozenset({bool, int, float, complex, type(None)})

#: The modules of namespaces; tensors of other frameworks provide their own.
_MODULES = {row.name: row.namespace for row in register() if row.namespace is not None}


def array_namespace(*xs: Any) -> Any:
    """The Array API namespace of the tensors among the arguments, all of one framework.

    Args:
        xs: Tensors; variables of Keras and Flax, which have the namespace of their value; buffers,
            arrays and columns of other libraries in host memory, which have that of NumPy. Python
            scalars and None are ignored.

    Returns:
        The module with the functions of the Array API.

    Raises:
        InvalidArgumentError: The tensors are of several frameworks, no argument is a tensor, or the
            framework has no namespace.

    Example:
        >>> x = np.array([1.0, 2.0])
        >>> xp = ferry.array_namespace(x)
        >>> float(xp.sum(x))
        3.0
    """
    found: str | None = None
    for x in xs:
        kind: Any = type(x)
        if kind in _IGNORED_TYPES:
            continue
        framework = _framework(kind) or _converted_framework(x)
        if found is None:
            found, first = framework, x
        elif framework != found:
            raise _mixed_error(xs)
    if found is None:
        raise InvalidArgumentError(
            "array_namespace was called without a tensor\nhint: pass one: ferry.array_namespace(x)"
        )
    return _namespace(found) if found in _MODULES else _own_namespace(found, first)


@functools.lru_cache(maxsize=512)
def _framework(kind: Any) -> str | None:
    """The framework of a tensor type; for types with a namespace of their own, their package."""
    found = classify_type(kind)
    if found is not None and found[1] in ("dense", "traced", "opaque"):
        return found[0]
    name = f"{kind.__module__}.{kind.__qualname__}"
    has_own = hasattr(kind, "__array_namespace__")
    if found is not None and found[1] == "other":
        return None  # the instance tells: a masked array may mask nothing
    if found is not None and not (found[1] == "sparse" and has_own):
        raise InvalidArgumentError(
            f"array_namespace was called with {name}, which is not a dense tensor"
            "\nhint: pass a dense tensor"
        )
    if has_own:
        return str(kind.__module__).partition(".")[0]
    return None


def _converted_framework(x: Any) -> str:
    """The framework of an object that `ferry.to` converts, of another type."""
    value = variable_value(x)
    if value is not x:
        kind: Any = type(value)
        return _framework(kind) or _converted_framework(value)
    found = None
    hint: Any = "pass tensors, Python scalars and None; pass the elements of containers"
    try:
        if type(x) is not bytes:  # as for `via`, text and not a tensor
            planned = plan(x, "numpy")
            # A parameter of Flax is a tree around one tensor.
            is_node = planned.kind == "tree" and hasattr(x, "__dlpack__")
            found = source_framework(planned.parts[0] if is_node else planned)
    except FerryError as error:
        hint = error.hint if _is_refused(x) else hint
    if found is None:
        raise InvalidArgumentError(
            f"array_namespace was called with {type(x).__module__}.{type(x).__qualname__}, "
            f"which is not a tensor\nhint: {hint}"
        )
    return found


@functools.cache
def _namespace(framework: str) -> Any:
    return importlib.import_module(_MODULES[framework])


def _own_namespace(framework: str, x: Any) -> Any:
    """The namespace that a tensor provides itself."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    raise InvalidArgumentError(
        f"the tensors of {framework} have no Array API namespace\n"
        'hint: convert them to a framework that has one, such as ferry.to(x, "torch")'
    )


def _mixed_error(xs: tuple[Any, ...]) -> InvalidArgumentError:
    tensors: list[tuple[Any, Any]] = [(type(x), x) for x in xs if type(x) not in _IGNORED_TYPES]
    names = dict.fromkeys(_framework(kind) or _converted_framework(x) for kind, x in tensors)
    return InvalidArgumentError(
        f"array_namespace was called with tensors of {' and '.join(names)}\n"
        "hint: convert them to one framework with ferry.to, or decorate the function with "
        "@ferry.agnostic"
    )
