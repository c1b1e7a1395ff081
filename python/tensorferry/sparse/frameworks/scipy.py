"""SciPy: csr, csc, coo and bsr, arrays (`csr_array`) and matrices (`csr_matrix`).

SciPy keeps elements in any order, and duplicates. What it has found out about that it keeps in
flags, which are set here.
"""

import contextlib
from typing import Any

from tensorferry._native import UnsupportedError, _fast_paths_disabled
from tensorferry.framework_register import load
from tensorferry.sparse.parts import Parts


def read(x: Any) -> Parts:
    """Takes a tensor apart."""
    kind = x.format
    name = f"{kind}_matrix" if type(x).__name__.endswith("_matrix") else kind
    if kind in ("csr", "csc"):
        shape = x.shape
        if len(shape) == 1:
            return Parts("coo", name, shape, x.data, (x.indices,))
        return Parts(kind, name, shape, x.data, (x.indptr, x.indices))
    if kind == "coo":
        coordinates = tuple(x.coords) if hasattr(x, "coords") else (x.row, x.col)
        return Parts("coo", name, x.shape, x.data, coordinates)
    if kind == "bsr":
        arrays = (x.indptr, x.indices)
        return Parts("bsr", name, x.shape, x.data, arrays, blocksize=tuple(x.blocksize))
    raise UnsupportedError(
        f"a SciPy {kind} array keeps no arrays that others have\nhint: pass x.tocsr(), or x.tocoo()"
    )


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Puts a tensor together."""
    name = format if format.endswith("_matrix") else f"{format}_array"
    if format.startswith("coo"):
        return _coo(name, shape, values, arrays, unique)
    return _compressed(name, shape, values, arrays, in_order, unique)


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
    name: str, shape: tuple[int, ...], values: Any, coordinates: tuple[Any, ...], unique: bool
) -> Any:
    blank = _blank(name)
    if blank is not None:
        made = blank[0].__new__(blank[0])
        made.__dict__.update(blank[1], _shape=shape, data=values, coords=coordinates)
    else:
        make = getattr(load("scipy"), name)
        made = make((values, coordinates), shape=shape, copy=False)
        # Older versions make the indices narrower when they can.
        if hasattr(made, "coords"):
            made.coords = coordinates
        else:
            made.row, made.col = coordinates
    made.has_canonical_format = unique
    return made


def _compressed(
    name: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    indptr, indices = arrays
    blank = _blank(name)
    if blank is not None:
        made = blank[0].__new__(blank[0])
        own = {"data": values, "indices": indices, "indptr": indptr}
        made.__dict__.update(blank[1], _shape=shape, **own)
    else:
        make = getattr(load("scipy"), name)
        made = make((values, indices, indptr), shape=shape, copy=False)
        made.data, made.indices, made.indptr = values, indices, indptr
    made.has_sorted_indices = in_order
    with contextlib.suppress(AttributeError):  # not of every format, in every version
        made.has_canonical_format = unique
    return made
