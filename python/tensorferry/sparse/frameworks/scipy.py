"""SciPy: csr, csc, coo and bsr, arrays (`csr_array`) and matrices (`csr_matrix`).

SciPy supports elements in any order, and duplicates. It caches both properties in flags, which are
set here.
"""

import contextlib
from typing import Any

from tensorferry._native import UnsupportedError, _fast_path_enabled, _fast_path_probed
from tensorferry.framework_register import load
from tensorferry.sparse.components import SparseComponents


def read(x: Any) -> SparseComponents:
    """Returns the components of a tensor."""
    kind = x.format
    name = f"{kind}_matrix" if type(x).__name__.endswith("_matrix") else kind
    if kind in ("csr", "csc"):
        shape = x.shape
        if len(shape) == 1:
            # The arrays may be longer than the tensor.
            used = int(x.indptr[-1])
            return SparseComponents("coo", name, shape, x.data[:used], (x.indices[:used],))
        return SparseComponents(kind, name, shape, x.data, (x.indptr, x.indices))
    if kind == "coo":
        coordinates = tuple(x.coords) if hasattr(x, "coords") else (x.row, x.col)
        return SparseComponents("coo", name, x.shape, x.data, coordinates)
    if kind == "bsr":
        arrays = (x.indptr, x.indices)
        return SparseComponents("bsr", name, x.shape, x.data, arrays, blocksize=tuple(x.blocksize))
    raise UnsupportedError(
        f"the format of a SciPy {kind} array is not supported\nhint: pass x.tocsr(), or x.tocoo()"
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
    name = format if format.endswith("_matrix") else f"{format}_array"
    if format.startswith("coo"):
        return _coo(name, shape, values, arrays, unique)
    return _compressed(name, shape, values, arrays, in_order, unique)


# The attributes of an empty tensor of each class; None if they differ from the known ones.
_TEMPLATES: dict[str, tuple[Any, dict[str, Any]] | None] = {}
_KNOWN_ATTRIBUTES = {
    "_shape",
    "maxprint",
    "data",
    "indices",
    "indptr",
    "coords",
    "has_canonical_format",
}


def _template(name: str) -> tuple[Any, dict[str, Any]] | None:
    """A class, and the attributes of an empty tensor of it.

    The constructor validates indices, which have been validated, and may narrow their type. A copy
    of the attributes with other arrays equals the object that the constructor would make.
    """
    if name not in _TEMPLATES:
        made = None
        if _fast_path_enabled("scipy.without_constructor"):
            kind = getattr(load("scipy"), name)
            empty = dict(vars(kind((1, 1))))
            reason = _compare_with_constructor(kind, empty)
            _fast_path_probed("scipy.without_constructor", reason and f"{name}: {reason}")
            made = (kind, empty) if reason is None else None
        _TEMPLATES[name] = made
    return _TEMPLATES[name]


def _compare_with_constructor(kind: Any, empty: dict[str, Any]) -> str | None:
    """How an object made without the constructor differs from one made by it; None if equal.

    Both have the same arrays, so that every attribute is identical or equal.
    """
    numpy = load("numpy")
    is_coo = kind.__name__.startswith("coo")
    own = {"coords"} if is_coo else {"indices", "indptr"}
    if unknown := empty.keys() - _KNOWN_ATTRIBUTES:
        return f"the object has the unknown attribute {min(unknown)}"
    if missing := {"_shape", "data", *own} - empty.keys():
        return f"the object lacks the attribute {min(missing)}"
    values = numpy.ones((1, 1, 1) if kind.__name__.startswith("bsr") else 1)
    first, pointers = numpy.zeros(1, "int32"), numpy.array([0, 1, 1], "int32")
    parts = {"coords": (first, first)} if is_coo else {"indices": first, "indptr": pointers}
    given = (values, (first, first)) if is_coo else (values, first, pointers)
    by_constructor = vars(kind(given, shape=(2, 2), copy=False))
    for name, part in {"_shape": (2, 2), "data": values, **parts}.items():
        found = by_constructor[name]
        same = all(map(numpy.array_equal, found, part)) and len(found) == len(part)
        if type(found) is not type(part) or not same:
            return f"the constructor sets {name} to {found!r} for {part!r}"
    # The caller sets the flag for each tensor.
    compared = {"_shape", "data", "has_canonical_format", *parts}
    for name in (by_constructor.keys() | empty.keys()) - compared:
        if by_constructor.get(name) != empty.get(name):
            return f"the attribute {name} depends on the arrays"
    return None


def _coo(
    name: str, shape: tuple[int, ...], values: Any, coordinates: tuple[Any, ...], unique: bool
) -> Any:
    template = _template(name)
    if template is not None:
        made = template[0].__new__(template[0])
        made.__dict__.update(template[1], _shape=shape, data=values, coords=coordinates)
    else:
        make = getattr(load("scipy"), name)
        made = make((values, coordinates), shape=shape, copy=False)
        # Older versions narrow the type of indices.
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
    template = _template(name)
    if template is not None:
        made = template[0].__new__(template[0])
        own = {"data": values, "indices": indices, "indptr": indptr}
        made.__dict__.update(template[1], _shape=shape, **own)
    else:
        make = getattr(load("scipy"), name)
        made = make((values, indices, indptr), shape=shape, copy=False)
        made.data, made.indices, made.indptr = values, indices, indptr
    made.has_sorted_indices = in_order
    with contextlib.suppress(AttributeError):  # some formats and versions lack it
        made.has_canonical_format = unique
    return made
