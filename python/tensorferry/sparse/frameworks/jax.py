"""JAX: BCOO ("coo") and BCSR ("csr") of `jax.experimental.sparse`.

Coordinates lie point by point, as int32 while 64-bit types are off. Order and repeats are free, and
said by two flags. Elements whose coordinates are beyond the shape are padding, which only JAX
knows: others do not get it.
"""

from typing import Any

from tensorferry._native import UnsupportedError, _fast_paths_disabled
from tensorferry.framework_register import load, title
from tensorferry.sparse.bundle import Bundle, Rules
from tensorferry.sparse.work import IN_ORDER, UNIQUE

ARRAYS = "jax"
TITLE = title("jax")
BOTH = IN_ORDER | UNIQUE


def _rules(wide: bool) -> dict[str, Rules]:
    indices = ("int32", "int64") if wide else ("int32",)
    why = "" if wide else "64-bit types are off"
    return {
        "coo": Rules(indices, laid="points", dense=True, batch=True, why=why),
        "csr": Rules(indices, fewest_axes=2, most_axes=2, dense=True, batch=True, why=why),
    }


_FORMATS = {wide: _rules(wide) for wide in (False, True)}


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    return _FORMATS[bool(load("jax").config.jax_enable_x64)]


def read(x: Any) -> Bundle:
    """Takes a tensor apart."""
    kind = type(x).__name__
    shape = tuple(map(int, x.shape))
    if kind == "BCOO":
        made = Bundle("jax", "coo", shape, x.data, (x.indices,), "points", name="coo")
    elif kind == "BCSR":
        parts = {"indices": x.indices, "indptr": x.indptr}
        made = Bundle("jax", "csr", shape, x.data, **parts, name="csr")
    else:
        raise UnsupportedError(
            f"JAX's {kind} is no format that JAX keeps up\nhint: make it a BCOO or a BCSR"
        )
    made.batch, made.dense, made.padded = int(x.n_batch), int(x.n_dense), True
    made.in_order, made.unique = bool(x.indices_sorted), bool(x.unique_indices)
    return made


def write(bundle: Bundle) -> Any:
    """Puts a tensor together."""
    bits = (IN_ORDER if bundle.in_order else 0) | (UNIQUE if bundle.unique else 0)
    if bundle.format == "coo":
        return _coo(bundle.values, bundle.coordinates, bundle.shape, bits)
    return _csr(bundle.values, bundle.indptr, bundle.indices, bundle.shape, bits)


def _coo(values: Any, parts: tuple[Any, ...], shape: tuple[int, ...], bits: int) -> Any:
    sparse = load("jax", "jax.experimental.sparse")
    return _put(sparse.BCOO, (values, parts[0]), shape, bits)


def _csr(values: Any, indptr: Any, indices: Any, shape: tuple[int, ...], bits: int) -> Any:
    sparse = load("jax", "jax.experimental.sparse")
    return _put(sparse.BCSR, (values, indices, indptr), shape, bits)


def _put(kind: Any, parts: tuple[Any, ...], shape: tuple[int, ...], bits: int) -> Any:
    """As JAX does it after `jit`: its constructor traces a function to check shapes."""
    flags = {"indices_sorted": bool(bits & IN_ORDER), "unique_indices": bits & BOTH == BOTH}
    if _fast_paths_disabled or not hasattr(kind, "tree_unflatten"):
        return kind(parts, shape=tuple(shape), **flags)
    return kind.tree_unflatten({"shape": tuple(shape), **flags}, parts)


WRITES = {"coo": _coo, "csr": _csr}


def _open_coo(x: Any) -> Any:
    if x.n_batch or x.n_dense:
        return None
    return x.data, (x.indices,), "points", x.shape


def _open_csr(x: Any) -> Any:
    return None if x.n_batch or x.n_dense else (x.data, x.indptr, x.indices, x.shape)


OPENS = {"BCOO": ("coo", _open_coo), "BCSR": ("csr", _open_csr)}


def scatter(bundle: Bundle) -> Any:
    """A dense tensor, on the device of the parts."""
    jax = load("jax")
    values, places = bundle.values, bundle.coordinates[0]
    at = tuple(places[:, axis] for axis in range(places.shape[1]))
    with jax.default_device(next(iter(values.devices()))):
        made = jax.numpy.zeros(bundle.shape, values.dtype)
        if values.dtype == bool:
            return made.at[at].max(values)
        return made.at[at].add(values)
