"""CuPy: csr, csc and coo matrices of `cupyx.scipy.sparse`, on a GPU."""

import contextlib
from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load
from tensorferry.sparse.components import SparseComponents
from tensorferry.sparse.gpu_functions import CupyFunctions


def read(x: Any) -> SparseComponents:
    """Returns the components of a tensor."""
    kind = x.format
    if kind == "coo":
        return SparseComponents("coo", kind, x.shape, x.data, (x.row, x.col))
    if kind not in ("csr", "csc"):
        raise UnsupportedError(
            f"the format of a CuPy {kind} matrix is not supported\nhint: pass x.tocsr()"
        )
    return SparseComponents(kind, kind, x.shape, x.data, (x.indptr, x.indices))


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Makes a tensor from its components."""
    make = getattr(load("cupy", "cupyx.scipy.sparse"), f"{format}_matrix")
    with values.device:
        if format == "coo":
            made = make((values, arrays), shape=shape, copy=False)
        else:
            indptr, indices = arrays
            made = make((values, indices, indptr), shape=shape, copy=False)
            with contextlib.suppress(AttributeError):
                made.has_sorted_indices = in_order
        # CuPy computes a flag that cannot be set.
        with contextlib.suppress(AttributeError):
            made.has_canonical_format = unique
    return made


def scatter(
    shape: tuple[int, ...], values: Any, coordinates: tuple[Any, ...], is_unique: bool
) -> Any:
    """A dense tensor, on the GPU of the values."""
    functions = CupyFunctions(f"cuda:{values.device.id}")
    with values.device:
        made = functions.xp.zeros(shape, values.dtype)
        if is_unique:
            made[coordinates] = values
        else:
            functions.add(made, coordinates, values)
    return made
