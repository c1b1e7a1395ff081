"""PyTorch: sparse_coo, sparse_csr, sparse_csc and sparse_bsr.

A coo tensor that is not coalesced may have its elements in any order, with duplicates. A tensor
that requires a gradient is detached.
"""

from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load
from tensorferry.sparse.components import SparseComponents
from tensorferry.sparse.gpu_functions import TorchFunctions

_LAYOUTS: dict[Any, str] = {}


def _format(layout: Any) -> str:
    if layout not in _LAYOUTS:
        _LAYOUTS[layout] = str(layout).removeprefix("torch.sparse_")
    return _LAYOUTS[layout]


def read(x: Any) -> SparseComponents:
    """Returns the components of a tensor."""
    kind = _format(x.layout)
    is_read_only = is_detached = False
    if x.requires_grad:
        # Autograd may still need the values, so they must not be written.
        is_read_only, is_detached = not x.is_leaf, True
        x = x.detach()
    if kind == "coo":
        # PyTorch documents these two for tensors that are not coalesced.
        values = x._values()
        dense_axes = values.ndim - 1
        arrays = (x._indices(),)
        return SparseComponents(
            kind,
            kind,
            x.shape,
            values,
            arrays,
            "axes",
            None,
            0,
            dense_axes,
            False,
            is_read_only,
            is_detached,
        )
    if kind in ("csr", "bsr"):
        indptr, indices = x.crow_indices(), x.col_indices()
    elif kind == "csc":
        indptr, indices = x.ccol_indices(), x.row_indices()
    else:
        raise UnsupportedError(
            "the format of PyTorch's sparse_bsc is not supported"
            "\nhint: pass x.to_sparse_coo() or x.to_sparse_bsr(...)"
        )
    values = x.values()
    batch_axes = indptr.ndim - 1
    dense_axes = values.ndim - batch_axes - 1
    blocksize = None
    if kind == "bsr":
        dense_axes -= 2
        blocksize = tuple(values.shape[batch_axes + 1 : batch_axes + 3])
    return SparseComponents(
        kind,
        kind,
        x.shape,
        values,
        (indptr, indices),
        "separate",
        blocksize,
        batch_axes,
        dense_axes,
        False,
        is_read_only,
        is_detached,
    )


def write(
    format: str,
    shape: tuple[int, ...],
    values: Any,
    arrays: tuple[Any, ...],
    in_order: bool,
    unique: bool,
) -> Any:
    """Makes a tensor from its components, which have been validated."""
    torch = load("torch")
    if format == "coo":
        return torch.sparse_coo_tensor(
            arrays[0], values, shape, is_coalesced=unique, check_invariants=False
        )
    return torch.sparse_compressed_tensor(
        *arrays, values, shape, layout=getattr(torch, f"sparse_{format}"), check_invariants=False
    )


def scatter(
    shape: tuple[int, ...], values: Any, coordinates: tuple[Any, ...], is_unique: bool
) -> Any:
    """A dense tensor, on the device of the values."""
    functions = TorchFunctions(str(values.device))
    made = functions.xp.zeros(shape, dtype=values.dtype, device=values.device)
    points = tuple(coordinates[0])
    if is_unique:
        made[points] = values
    else:
        functions.add(made, points, values)
    return made
