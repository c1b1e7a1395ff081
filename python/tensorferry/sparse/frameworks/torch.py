"""PyTorch: sparse_coo, sparse_csr, sparse_csc and sparse_bsr.

Coordinates are int64, one matrix with a row for each axis, and dense in memory: kernels of PyTorch
misread transposed ones. They may be in any order with repeats, which is what "not coalesced" says.
Compressed formats must be in order and have each place once. A tensor that requires a gradient is
carried detached.
"""

from collections.abc import Callable
from typing import Any

from tensorferry._native import UnsupportedError
from tensorferry.framework_register import load, title
from tensorferry.sparse.bundle import Bundle, Rules, dtype_of
from tensorferry.sparse.gpu import Torch
from tensorferry.sparse.work import IN_ORDER, UNIQUE

ARRAYS = "torch"
TITLE = title("torch")
BOTH = IN_ORDER | UNIQUE


_COMPRESSED = Rules(
    ("int32", "int64"),
    in_order=True,
    unique=True,
    fewest_axes=2,
    most_axes=2,
    dense=True,
    batch=True,
    why="PyTorch's compressed formats have each place once, in order",
)
_FORMATS = {
    "coo": Rules(("int64",), laid="axes", dense=True),
    "csr": _COMPRESSED,
    "csc": _COMPRESSED,
    "bsr": _COMPRESSED,
}


def formats() -> dict[str, Rules]:
    """What each format asks for."""
    return _FORMATS


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
        raise UnsupportedError(
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
    """Puts a tensor together."""
    bits = (IN_ORDER if bundle.in_order else 0) | (UNIQUE if bundle.unique else 0)
    if bundle.format == "coo":
        return _coo(bundle.values, bundle.coordinates, bundle.shape, bits)
    return _compressed(bundle.format)(
        bundle.values, bundle.indptr, bundle.indices, bundle.shape, bits
    )


def _coo(values: Any, parts: tuple[Any, ...], shape: tuple[int, ...], bits: int) -> Any:
    # What it would check has been checked.
    return load("torch").sparse_coo_tensor(
        parts[0],
        values,
        shape,
        is_coalesced=bits & BOTH == BOTH,
        check_invariants=False,
    )


def _compressed(form: str) -> Callable[..., Any]:
    name = f"sparse_{form}"

    def write(values: Any, indptr: Any, indices: Any, shape: tuple[int, ...], bits: int) -> Any:
        torch = load("torch")
        make, layout = torch.sparse_compressed_tensor, getattr(torch, name)
        # What it would check has been checked.
        return make(indptr, indices, values, shape, layout=layout, check_invariants=False)

    return write


WRITES = {"coo": _coo, "csr": _compressed("csr"), "csc": _compressed("csc")}


def _open_coo(x: Any) -> Any:
    values = x._values()
    if x.requires_grad or values.ndim != 1:
        return None
    return values, (x._indices(),), "axes", x.shape


def _open_csr(x: Any) -> Any:
    if x.requires_grad or x.ndim != 2:
        return None
    values = x.values()
    return None if values.ndim != 1 else (values, x.crow_indices(), x.col_indices(), x.shape)


def _open_csc(x: Any) -> Any:
    if x.requires_grad or x.ndim != 2:
        return None
    values = x.values()
    return None if values.ndim != 1 else (values, x.ccol_indices(), x.row_indices(), x.shape)


OPENS = {
    "sparse_coo": ("coo", _open_coo),
    "sparse_csr": ("csr", _open_csr),
    "sparse_csc": ("csc", _open_csc),
}


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
