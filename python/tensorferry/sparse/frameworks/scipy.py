"""SciPy: csr, csc, coo and bsr, arrays (`csr_array`) and matrices (`csr_matrix`).

SciPy keeps elements in any order, and the same place twice; what it has found out about that it
keeps in flags, which are set here. A format may be given as "csr", which makes an array, or as
"csr_matrix".
"""

import contextlib
from functools import partial
from typing import Any

from tensorferry._native import UnsupportedError, _fast_paths_disabled
from tensorferry.framework_register import load, title
from tensorferry.sparse.bundle import Bundle, Rules
from tensorferry.sparse.work import IN_ORDER, UNIQUE

ARRAYS = "numpy"
TITLE = title("scipy")
BOTH = IN_ORDER | UNIQUE

# What its compiled functions were made for; others can be put in, but not worked with.
DTYPES = frozenset(
    (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    )
)


_INDICES = ("int32", "int64")
_COMPRESSED = Rules(_INDICES, fewest_axes=2, most_axes=2, strided=True, dtypes=DTYPES)
_FORMATS = {
    "coo": Rules(_INDICES, strided=True, dtypes=DTYPES),
    "csr": _COMPRESSED,
    "csc": _COMPRESSED,
    "bsr": _COMPRESSED,
}


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    return _FORMATS


def read(x: Any) -> Bundle:
    """Takes a tensor apart."""
    kind = x.format
    name = f"{kind}_matrix" if type(x).__name__.endswith("_matrix") else kind
    shape = tuple(map(int, x.shape))
    if kind == "coo":
        coordinates = tuple(x.coords) if hasattr(x, "coords") else (x.row, x.col)
        return Bundle("scipy", "coo", shape, x.data, coordinates, name=name)
    if kind not in ("csr", "csc", "bsr"):
        raise UnsupportedError(
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
    bits = (IN_ORDER if bundle.in_order else 0) | (UNIQUE if bundle.unique else 0)
    name = bundle.name if bundle.name.endswith("_matrix") else f"{bundle.format}_array"
    if bundle.format == "coo":
        return _coo(bundle.values, bundle.coordinates, bundle.shape, bits, name)
    parts = (bundle.values, bundle.indptr, bundle.indices)
    return _compressed(*parts, bundle.shape, bits, name)


# The attributes of an empty tensor of each class; None where they are not those that are known.
_BLANKS: dict[str, tuple[Any, dict[str, Any]] | None] = {}
_KNOWN = {"_shape", "maxprint", "data", "indices", "indptr", "coords", "has_canonical_format"}


def _blank(name: str) -> tuple[Any, dict[str, Any]] | None:
    """A class and the attributes of a tensor of it.

    Its function looks through what has been looked through here, and may make indices narrower. An
    object with the same attributes, and other arrays, is what that function would make.
    """
    if name not in _BLANKS:
        kind = getattr(load("scipy"), name)
        empty = dict(vars(kind((1, 1))))
        own = {"coords"} if name.startswith("coo") else {"indices", "indptr"}
        alike = empty.keys() <= _KNOWN and {"_shape", "data", *own} <= empty.keys()
        _BLANKS[name] = (kind, empty) if alike and not _fast_paths_disabled else None
    return _BLANKS[name]


def _coo(
    values: Any,
    parts: tuple[Any, ...],
    shape: tuple[int, ...],
    bits: int,
    name: str = "coo_array",
) -> Any:
    blank = _blank(name)
    if blank is not None:
        made = blank[0].__new__(blank[0])
        made.__dict__.update(blank[1], _shape=tuple(shape), data=values, coords=parts)
    else:
        make = getattr(load("scipy"), name)
        made = make((values, parts), shape=shape, copy=False)
        # Older versions make the indices narrower when they can.
        if hasattr(made, "coords"):
            made.coords = parts
        else:
            made.row, made.col = parts
    made.has_canonical_format = bits & BOTH == BOTH
    return made


def _compressed(
    values: Any, indptr: Any, indices: Any, shape: tuple[int, ...], bits: int, name: str
) -> Any:
    blank = _blank(name)
    if blank is not None:
        made = blank[0].__new__(blank[0])
        arrays = {"data": values, "indices": indices, "indptr": indptr}
        made.__dict__.update(blank[1], _shape=tuple(shape), **arrays)
    else:
        make = getattr(load("scipy"), name)
        made = make((values, indices, indptr), shape=shape, copy=False)
        made.data, made.indices, made.indptr = values, indices, indptr
    made.has_sorted_indices = bool(bits & IN_ORDER)
    with contextlib.suppress(AttributeError):  # not of every format, in every version
        made.has_canonical_format = bits & BOTH == BOTH
    return made


WRITES = {
    "coo": _coo,
    "csr": partial(_compressed, name="csr_array"),
    "csc": partial(_compressed, name="csc_array"),
    "coo_matrix": partial(_coo, name="coo_matrix"),
    "csr_matrix": partial(_compressed, name="csr_matrix"),
    "csc_matrix": partial(_compressed, name="csc_matrix"),
}


def _open_compressed(x: Any) -> Any:
    shape = x.shape
    return None if len(shape) != 2 else (x.data, x.indptr, x.indices, shape)


def _open_coo(x: Any) -> Any:
    parts = x.coords if hasattr(x, "coords") else (x.row, x.col)
    return x.data, parts, "apart", x.shape


OPENS = {
    f"{form}_{kind}": (form, _open_coo if form == "coo" else _open_compressed)
    for form in ("coo", "csr", "csc")
    for kind in ("array", "matrix")
}
