"""PyTorch: sparse_coo, sparse_csr, sparse_csc and sparse_bsr.

A coo tensor may have its elements in any order with duplicates, which is what "not coalesced" says.
A tensor that requires a gradient is carried detached.
"""

from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load
from tensorferry.sparse.components import Parts
from tensorferry.sparse.gpu import Torch

_LAYOUTS: dict[Any, str] = {}


def _format(layout: Any) -> str:
    if layout not in _LAYOUTS:
        _LAYOUTS[layout] = str(layout).removeprefix("torch.sparse_")
    return _LAYOUTS[layout]


def read(x: Any) -> Parts:
    """Takes a tensor apart."""
    kind = _format(x.layout)
    is_read_only = is_detached = False
    if x.requires_grad:
        # What autograd still needs must not be written by anybody.
        is_read_only, is_detached = not x.is_leaf, True
        x = x.detach()
    if kind == "coo":
        # PyTorch documents these two for tensors that are not coalesced.
        values = x._values()
        dense_axes = values.ndim - 1
        arrays = (x._indices(),)
        return Parts(
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
            "PyTorch's sparse_bsc is a format that no other framework has"
            "\nhint: pass x.to_sparse_coo(), or make it sparse_bsr"
        )
    values = x.values()
    batch_axes = indptr.ndim - 1
    dense_axes = values.ndim - batch_axes - 1
    blocksize = None
    if kind == "bsr":
        dense_axes -= 2
        blocksize = tuple(values.shape[batch_axes + 1 : batch_axes + 3])
    return Parts(
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
    """Puts a tensor together. What PyTorch would check has been validated."""
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
    functions = Torch(str(values.device))
    made = functions.xp.zeros(shape, dtype=values.dtype, device=values.device)
    points = tuple(coordinates[0])
    if is_unique:
        made[points] = values
    else:
        functions.add(made, points, values)
    return made
