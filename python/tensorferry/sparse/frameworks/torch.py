"""PyTorch: sparse_coo, sparse_csr, sparse_csc and sparse_bsr.

Coordinates are int64, one matrix with a row for each axis, and dense in memory: kernels of PyTorch
misread transposed ones. They may be in any order with repeats, which is what "not coalesced" says.
Compressed formats must be in order and have each place once. A tensor that requires a gradient is
carried detached.
"""

from typing import Any

from tensorferry._native import UnsupportedLayout
from tensorferry.sparse.bundle import Bundle, Rules, dtype_of
from tensorferry.sparse.frameworks import library
from tensorferry.sparse.work import Torch

ARRAYS = "torch"
TITLE = "PyTorch"


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    compressed = Rules(
        ("int32", "int64"),
        in_order=True,
        unique=True,
        fewest_axes=2,
        most_axes=2,
        dense=True,
        batch=True,
        why="PyTorch's compressed formats have each place once, in order",
    )
    coordinates = Rules(("int64",), laid="axes", dense=True)
    return {"coo": coordinates, "csr": compressed, "csc": compressed, "bsr": compressed}


def read(x: Any) -> Bundle:
    """Takes a tensor apart."""
    kind = str(x.layout).removeprefix("torch.sparse_")
    # What autograd still needs must not be written by anybody.
    frozen, detached = bool(x.requires_grad and not x.is_leaf), bool(x.requires_grad)
    shape = tuple(map(int, x.shape))
    x = x.detach()
    if kind == "coo":
        made = Bundle("torch", "coo", shape, x._values(), (x._indices(),), "axes", name=kind)
        made.dense = int(x.dense_dim())
    elif kind in ("csr", "bsr"):
        parts = {"indices": x.col_indices(), "indptr": x.crow_indices()}
        made = Bundle("torch", kind, shape, x.values(), **parts, name=kind)
    elif kind == "csc":
        parts = {"indices": x.row_indices(), "indptr": x.ccol_indices()}
        made = Bundle("torch", kind, shape, x.values(), **parts, name=kind)
    else:
        raise UnsupportedLayout(
            "PyTorch's sparse_bsc is a format that no other framework has"
            "\nhint: pass x.to_sparse_coo(), or make it sparse_bsr"
        )
    made.frozen, made.detached = frozen, detached
    if kind != "coo":
        made.batch = made.indptr.ndim - 1
        blocks = 2 if kind == "bsr" else 0
        made.dense = made.values.ndim - made.batch - 1 - blocks
        if blocks:
            first, second = made.values.shape[made.batch + 1 : made.batch + 3]
            made.blocksize = (int(first), int(second))
    return made


def write(bundle: Bundle) -> Any:
    """Puts a tensor together; what it would check has been checked."""
    torch = library("torch", "torch")
    if bundle.format == "coo":
        return torch.sparse_coo_tensor(
            bundle.coordinates[0],
            bundle.values,
            bundle.shape,
            is_coalesced=bundle.in_order and bundle.unique,
            check_invariants=False,
        )
    return torch.sparse_compressed_tensor(
        bundle.indptr,
        bundle.indices,
        bundle.values,
        bundle.shape,
        layout=getattr(torch, f"sparse_{bundle.format}"),
        check_invariants=False,
    )


def scatter(bundle: Bundle) -> Any:
    """A dense tensor, on the device of the parts."""
    work = Torch(str(bundle.values.device))
    made = work.fresh(bundle.shape, dtype_of(bundle.values), zero=True)
    places = tuple(bundle.coordinates[0])
    if bundle.in_order and bundle.unique:
        made[places] = bundle.values
    else:
        work.add(made, places, bundle.values)
    return made
