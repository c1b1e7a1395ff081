"""JAX: BCOO ("coo") and BCSR ("csr") of `jax.experimental.sparse`.

Coordinates lie point by point, as int32 while 64-bit types are off. Order and repeats are free, and
said by two flags. Elements whose coordinates are beyond the shape are padding, which only JAX
knows: others do not get it.
"""

from typing import Any

from tensorferry._native import UnsupportedLayout
from tensorferry.sparse.bundle import Bundle, Rules
from tensorferry.sparse.frameworks import library

ARRAYS = "jax"
TITLE = "JAX"


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    wide = str(library("jax", "jax").dtypes.canonicalize_dtype("int64")) == "int64"
    indices = ("int32", "int64") if wide else ("int32",)
    why = "" if wide else "64-bit types are off"
    return {
        "coo": Rules(indices, laid="points", dense=True, batch=True, why=why),
        "csr": Rules(indices, fewest_axes=2, most_axes=2, dense=True, batch=True, why=why),
    }


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
        raise UnsupportedLayout(
            f"JAX's {kind} is no format that JAX keeps up\nhint: make it a BCOO or a BCSR"
        )
    made.batch, made.dense, made.padded = int(x.n_batch), int(x.n_dense), True
    made.in_order, made.unique = bool(x.indices_sorted), bool(x.unique_indices)
    return made


def write(bundle: Bundle) -> Any:
    """Puts a tensor together."""
    sparse = library("jax.experimental.sparse", "jax")
    flags = {"indices_sorted": bundle.in_order, "unique_indices": bundle.unique}
    if bundle.format == "coo":
        return sparse.BCOO((bundle.values, bundle.coordinates[0]), shape=bundle.shape, **flags)
    parts = (bundle.values, bundle.indices, bundle.indptr)
    return sparse.BCSR(parts, shape=bundle.shape, **flags)


def scatter(bundle: Bundle) -> Any:
    """A dense tensor, on the device of the parts."""
    jax = library("jax", "jax")
    values, places = bundle.values, bundle.coordinates[0]
    at = tuple(places[:, axis] for axis in range(places.shape[1]))
    with jax.default_device(next(iter(values.devices()))):
        made = jax.numpy.zeros(bundle.shape, values.dtype)
        if values.dtype == bool:
            return made.at[at].max(values)
        return made.at[at].add(values)
