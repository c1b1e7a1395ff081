"""CuPy: csr, csc and coo matrices of `cupyx.scipy.sparse`, on a GPU.

Like SciPy's, but of two axes, with int32 indices, and with values of five types.
"""

import contextlib
from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load, title
from tensorferry.sparse.bundle import Bundle, Rules, dtype_of
from tensorferry.sparse.gpu import Cupy

ARRAYS = "cupy"
TITLE = title("cupy")
DTYPES = frozenset(("bool", "float32", "float64", "complex64", "complex128"))


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    asked = Rules(("int32",), fewest_axes=2, most_axes=2, dtypes=DTYPES)
    return {"coo": asked, "csr": asked, "csc": asked}


def read(x: Any) -> Bundle:
    """Takes a tensor apart."""
    kind = x.format
    shape = tuple(map(int, x.shape))
    if kind == "coo":
        return Bundle("cupy", "coo", shape, x.data, (x.row, x.col), name=kind)
    if kind not in ("csr", "csc"):
        raise UnsupportedError(
            f"a CuPy {kind} matrix keeps no arrays that others have\nhint: pass x.tocsr()"
        )
    return Bundle("cupy", kind, shape, x.data, indices=x.indices, indptr=x.indptr, name=kind)


def write(bundle: Bundle) -> Any:
    """Puts a tensor together."""
    sparse = load("cupy", "cupyx.scipy.sparse")
    make = getattr(sparse, f"{bundle.format}_matrix")
    with bundle.values.device:
        if bundle.format == "coo":
            made = make((bundle.values, bundle.coordinates), shape=bundle.shape, copy=False)
        else:
            parts = (bundle.values, bundle.indices, bundle.indptr)
            made = make(parts, shape=bundle.shape, copy=False)
            with contextlib.suppress(AttributeError):
                made.has_sorted_indices = bundle.in_order
        # It looks for itself where a flag cannot be set.
        with contextlib.suppress(AttributeError):
            made.has_canonical_format = bundle.in_order and bundle.unique
    return made


def scatter(bundle: Bundle) -> Any:
    """A dense tensor, on the GPU of the parts."""
    work = Cupy(f"cuda:{bundle.values.device.id}")
    with bundle.values.device:
        made = work.fresh(bundle.shape, dtype_of(bundle.values), zero=True)
        if bundle.in_order and bundle.unique:
            made[bundle.coordinates] = bundle.values
        else:
            work.add(made, bundle.coordinates, bundle.values)
    return made


# The quick way is one of the host's.
WRITES: dict[str, Any] = {}
OPENS: dict[str, Any] = {}
