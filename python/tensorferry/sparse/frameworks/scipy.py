"""SciPy: csr, csc, coo and bsr, arrays (`csr_array`) and matrices (`csr_matrix`).

SciPy keeps elements in any order, and the same place twice; what it has found out about that it
keeps in flags, which are set here. A format may be given as "csr", which makes an array, or as
"csr_matrix".
"""

import contextlib
from typing import Any

from tensorferry._native import UnsupportedLayout
from tensorferry.sparse.bundle import Bundle, Rules
from tensorferry.sparse.frameworks import library

ARRAYS = "numpy"
TITLE = "SciPy"

# What its compiled functions were made for; others can be put in, but not worked with.
DTYPES = frozenset(
    (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    )
)


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    indices = ("int32", "int64")
    compressed = Rules(indices, fewest_axes=2, most_axes=2, strided=True, dtypes=DTYPES)
    coordinates = Rules(indices, strided=True, dtypes=DTYPES)
    return {"coo": coordinates, "csr": compressed, "csc": compressed, "bsr": compressed}


def read(x: Any) -> Bundle:
    """Takes a tensor apart."""
    kind = x.format
    name = f"{kind}_matrix" if type(x).__name__.endswith("_matrix") else kind
    shape = tuple(map(int, x.shape))
    if kind == "coo":
        coordinates = tuple(x.coords) if hasattr(x, "coords") else (x.row, x.col)
        return Bundle("scipy", "coo", shape, x.data, coordinates, name=name)
    if kind not in ("csr", "csc", "bsr"):
        raise UnsupportedLayout(
            f"a SciPy {kind} array keeps no arrays that others have"
            "\nhint: pass x.tocsr(), or x.tocoo()"
        )
    if len(shape) == 1:
        return Bundle("scipy", "coo", shape, x.data, (x.indices,), name=name)
    made = Bundle("scipy", kind, shape, x.data, indices=x.indices, indptr=x.indptr, name=name)
    if kind == "bsr":
        made.blocksize = (int(x.blocksize[0]), int(x.blocksize[1]))
    return made


def write(bundle: Bundle) -> Any:
    """Puts a tensor together."""
    sparse = library("scipy.sparse", "scipy")
    ending = "matrix" if bundle.name.endswith("_matrix") else "array"
    make = getattr(sparse, f"{bundle.format}_{ending}")
    if bundle.format == "coo":
        made = make((bundle.values, bundle.coordinates), shape=bundle.shape, copy=False)
        # Older versions make the indices narrower when they can.
        if hasattr(made, "coords"):
            made.coords = bundle.coordinates
        else:
            made.row, made.col = bundle.coordinates
        made.has_canonical_format = bundle.in_order and bundle.unique
        return made
    parts = (bundle.values, bundle.indices, bundle.indptr)
    made = make(parts, shape=bundle.shape, copy=False)
    made.data, made.indices, made.indptr = parts
    made.has_sorted_indices = bundle.in_order
    with contextlib.suppress(AttributeError):  # not of every format, in every version
        made.has_canonical_format = bundle.in_order and bundle.unique
    return made
