"""JAX: BCOO ("coo") and BCSR ("csr") of `jax.experimental.sparse`.

Coordinates are one matrix with a row for each element. Elements may have any order and duplicates,
which two flags describe. Elements whose coordinates are out of range are padding, which only JAX
supports: it is removed for other frameworks.
"""

from typing import Any

from tensorferry._native import UnsupportedError, _fast_path_enabled, _fast_path_probed
from tensorferry.framework_register import load
from tensorferry.sparse.components import SparseComponents


def read(x: Any) -> SparseComponents:
    """Returns the components of a tensor."""
    kind = type(x).__name__
    arrays: tuple[Any, ...]
    if kind == "BCOO":
        form, layout, arrays = "coo", "points", (x.indices,)
    elif kind == "BCSR":
        form, layout, arrays = "csr", "separate", (x.indptr, x.indices)
    else:
        raise UnsupportedError(
            f"JAX's {kind} is not supported\nhint: convert it to a BCOO or a BCSR"
        )
    return SparseComponents(
        form,
        form,
        x.shape,
        x.data,
        arrays,
        layout,
        None,
        x.n_batch,
        x.n_dense,
        True,
        False,
        False,
        x.indices_sorted,
        x.unique_indices,
    )


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Makes a tensor from its components."""
    sparse = load("jax", "jax.experimental.sparse")
    if format == "coo":
        return _put(sparse.BCOO, (values, arrays[0]), shape, in_order, unique)
    indptr, indices = arrays
    return _put(sparse.BCSR, (values, indices, indptr), shape, in_order, unique)


def _put(
    kind: Any, parts: tuple[Any, ...], shape: tuple[int, ...], in_order: bool, unique: bool
) -> Any:
    """As JAX does it after `jit`: its constructor traces a function to check shapes."""
    flags = {"indices_sorted": in_order, "unique_indices": unique}
    if kind not in _UNFLATTENS:
        _UNFLATTENS[kind] = _fast_path_enabled("jax.tree_unflatten") and _unflattens(kind)
    if not _UNFLATTENS[kind]:
        return kind(parts, shape=shape, **flags)
    return kind.tree_unflatten({"shape": shape, **flags}, parts)


# Whether objects of a class are made by `tree_unflatten`.
_UNFLATTENS: dict[Any, bool] = {}


def _unflattens(kind: Any) -> bool:
    """Whether it makes the same object as the constructor; the register is told why not."""
    numpy = load("numpy")
    names = ("data", "indices") if kind.__name__ == "BCOO" else ("data", "indices", "indptr")
    indices = numpy.zeros((1, 2) if kind.__name__ == "BCOO" else 1, "int32")
    parts = (numpy.ones(1, "float32"), indices, numpy.array([0, 1, 1], "int32"))[: len(names)]
    options = {"shape": (2, 2), "indices_sorted": True, "unique_indices": False}
    try:
        # The caller may be tracing, which would replace the arrays by tracers.
        with load("jax").ensure_compile_time_eval():
            found, expected = kind.tree_unflatten(dict(options), parts), kind(parts, **options)
        same = type(found) is type(expected) and all(
            numpy.array_equal(getattr(found, name), getattr(expected, name)) for name in names
        )
        flags = same and all(getattr(found, name) == options[name] for name in options)
        rest = flags and vars(found).keys() == vars(expected).keys()
        reason = (
            None if rest else f"the attributes of {kind.__name__} differ from its constructor's"
        )
    except Exception as error:
        reason = f"{kind.__name__}: {type(error).__name__}: {error}".partition("\n")[0]
    _fast_path_probed("jax.tree_unflatten", reason)
    return reason is None


def scatter(
    shape: tuple[int, ...], values: Any, coordinates: tuple[Any, ...], is_unique: bool
) -> Any:
    """A dense tensor, on the device of the values."""
    jax = load("jax")
    (points,) = coordinates
    at = tuple(points[:, axis] for axis in range(points.shape[1]))
    with jax.default_device(next(iter(values.devices()))):
        made = jax.numpy.zeros(shape, values.dtype)
        if values.dtype == bool:
            return made.at[at].max(values)
        return made.at[at].add(values)
