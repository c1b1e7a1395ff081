"""Sparse tensors for the tests, made by the frameworks' own constructors and read without us.

`make` makes one of a case; `stored` lists its elements in the order in which they lie, as places
and plain Python numbers. `expected` says in plain Python what a target must store.
"""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import scipy.sparse
import sparse as pydata
import tensorflow as tf
import torch
from jax.experimental import sparse as jax_sparse

SOURCES = (
    *("scipy csr", "scipy csc", "scipy coo", "scipy bsr"),
    *("scipy csr_matrix", "scipy csc_matrix", "scipy coo_matrix", "scipy bsr_matrix"),
    *("torch coo", "torch csr", "torch csc", "torch bsr"),
    *("jax coo", "jax csr", "tensorflow coo", "sparse coo"),
)
TARGETS = tuple(name for name in SOURCES if not name.endswith("_matrix"))
BLOCK = (1, 2)

# Shape, and the elements: a place and a small number, which every type holds.
CASES = {
    "empty": ((3, 4), []),
    "one": ((1, 2), [((0, 1), 5)]),
    "plain": ((3, 4), [((0, 1), 1), ((1, 0), 2), ((1, 3), 3), ((2, 2), 4)]),
    "duplicates": ((3, 4), [((0, 1), 1), ((0, 1), 2), ((2, 0), 3), ((2, 3), 4), ((2, 3), 5)]),
    "unsorted": ((3, 4), [((2, 2), 4), ((0, 3), 1), ((1, 0), 2), ((0, 1), 3)]),
    "both": ((3, 4), [((2, 1), 4), ((0, 3), 1), ((2, 1), 2), ((0, 0), 3), ((0, 3), 6)]),
    "zeros": ((3, 4), [((0, 2), 0), ((1, 1), 7), ((2, 0), 0)]),
    "no rows": ((0, 4), []),
    "no columns": ((3, 0), []),
}
DTYPES = ("float32", "float64", "complex64", "int32", "int64", "bool", "bfloat16")
CANONICAL = ("torch csr", "torch csc", "torch bsr", "tensorflow coo", "sparse coo")


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def torch_of(array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def make(kind, case, dtype="float32", index="int32"):
    """A tensor of a case; canonical, if its framework wants it so."""
    shape, elements = CASES[case] if isinstance(case, str) else case
    framework, form = kind.split()
    if kind in CANONICAL or form.startswith("bsr"):
        elements = summed(elements, dtype)
    base = form.removesuffix("_matrix")
    if base == "csr":
        elements = sorted(elements, key=lambda element: element[0][0])
    if base == "csc":
        key = (lambda e: e[0][1]) if framework == "scipy" else (lambda e: e[0][::-1])
        elements = sorted(elements, key=key)
    values = np.array([value for _, value in elements], dtype_of(dtype))
    places = np.array([place for place, _ in elements], index).reshape(-1, len(shape))
    if base == "bsr":
        return _blocks(framework, form, shape, elements, dtype, index)
    if framework == "scipy":
        return _scipy(form, shape, places, values)
    if framework == "torch":
        return _torch(form, shape, places, values)
    if framework == "jax":
        if form == "coo":
            return jax_sparse.BCOO((jnp.asarray(values), jnp.asarray(places)), shape=shape)
        parts = (values, places[:, 1], pointers(places[:, 0], shape[0], index))
        return jax_sparse.BCSR(tuple(map(jnp.asarray, parts)), shape=shape)
    if framework == "tensorflow":
        return tf.sparse.SparseTensor(places.astype("int64"), tf.constant(values), shape)
    columns = np.ascontiguousarray(places.T)
    return pydata.COO(columns, values, shape=shape, has_duplicates=False, sorted=True)


def pointers(rows, count, index):
    return np.searchsorted(rows, np.arange(count + 1)).astype(index)


def _scipy(form, shape, places, values):
    kind = form if form.endswith("_matrix") else form + "_array"
    constructor = getattr(scipy.sparse, kind)
    if form.startswith("coo"):
        return constructor((values, tuple(places.T)), shape=shape)
    major, minor = (0, 1) if form.startswith("csr") else (1, 0)
    indptr = pointers(places[:, major], shape[major], places.dtype)
    made = constructor((values, places[:, minor].copy(), indptr), shape=shape)
    made.indices, made.indptr = places[:, minor].copy(), indptr
    return made


def _torch_indices(array):
    """A copy: NumPy's empty arrays have strides that older versions of torch refuse here."""
    return torch.from_numpy(array).clone(memory_format=torch.contiguous_format)


def _torch(form, shape, places, values):
    values = torch_of(values)
    if form == "coo":
        indices = torch.from_numpy(places.T.astype("int64"))
        return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)
    major, minor = (0, 1) if form == "csr" else (1, 0)
    return torch.sparse_compressed_tensor(
        torch.from_numpy(pointers(places[:, major], shape[major], places.dtype)),
        _torch_indices(places[:, minor]),
        values,
        shape,
        layout=getattr(torch, f"sparse_{form}"),
        check_invariants=True,
    )


def _blocks(framework, form, shape, elements, dtype, index):
    high, wide = BLOCK
    blocks = sorted({(row // high, column // wide) for (row, column), _ in elements})
    data = np.zeros((len(blocks), high, wide), dtype_of(dtype))
    for (row, column), value in elements:
        data[blocks.index((row // high, column // wide)), row % high, column % wide] = value
    rows = np.array([row for row, _ in blocks], "int64")
    indices = np.array([column for _, column in blocks], index)
    indptr = pointers(rows, shape[0] // high, index)
    if framework == "scipy":
        kind = form if form.endswith("_matrix") else form + "_array"
        made = getattr(scipy.sparse, kind)((data, indices, indptr), shape=shape, blocksize=BLOCK)
        made.indices, made.indptr = indices, indptr
        return made
    return torch.sparse_bsr_tensor(
        torch.from_numpy(indptr),
        _torch_indices(indices),
        torch_of(data),
        shape,
        check_invariants=True,
    )


def arrays(x):
    """Format, values, and index arrays, as NumPy sees them."""
    module = type(x).__module__.split(".")[0]
    if module == "torch":
        form = str(x.layout).removeprefix("torch.sparse_")
        values = to_dense_array(x._values() if form == "coo" else x.values())
        if form == "coo":
            return form, values, list(x._indices().numpy())
        indptr = x.ccol_indices() if form == "csc" else x.crow_indices()
        indices = x.row_indices() if form == "csc" else x.col_indices()
        return form, values, [indptr.numpy(), indices.numpy()]
    if module == "scipy":
        if x.format == "coo":
            return "coo", x.data, list(x.coords)
        return x.format, x.data, [x.indptr, x.indices]
    if module == "jax":
        if type(x).__name__ == "BCOO":
            return "coo", np.asarray(x.data), list(np.asarray(x.indices).T)
        return "csr", np.asarray(x.data), [np.asarray(x.indptr), np.asarray(x.indices)]
    if module == "tensorflow":
        return "coo", x.values._numpy(), list(x.indices._numpy().T)
    return "coo", x.data, list(x.coords)


def to_dense_array(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def stored(x):
    """The elements in the order in which they lie."""
    form, values, index = arrays(x)
    if form == "coo":
        places = zip(*(axis.tolist() for axis in index), strict=True)
        return list(zip(places, values.tolist(), strict=True))
    indptr, indices = (part.tolist() for part in index)
    found = []
    for row in range(len(indptr) - 1):
        for at in range(indptr[row], indptr[row + 1]):
            if form == "bsr":
                high, wide = values.shape[1:]
                for i in range(high):
                    for j in range(wide):
                        place = (row * high + i, indices[at] * wide + j)
                        found.append((place, values[at, i, j].item()))
            else:
                place = (row, indices[at]) if form == "csr" else (indices[at], row)
                found.append((place, values[at].item()))
    return found


def summed(elements, dtype):
    """In order, each place once."""
    sums = {}
    for place, value in elements:
        if place in sums:
            sums[place] = bool(sums[place] or value) if dtype == "bool" else sums[place] + value
        else:
            sums[place] = value
    return sorted(sums.items())


def expected(elements, target, dtype):
    """What a target must store of these elements, and in which order."""
    form = target.split()[1].removesuffix("_matrix")
    if form == "bsr":
        sums = dict(summed(elements, dtype))
        high, wide = BLOCK
        zero = np.zeros((), dtype_of(dtype)).item()
        return [
            (
                (row * high + i, column * wide + j),
                sums.get((row * high + i, column * wide + j), zero),
            )
            for row, column in sorted({(r // high, c // wide) for r, c in sums})
            for i in range(high)
            for j in range(wide)
        ]
    if target in CANONICAL:
        elements = summed(elements, dtype)
        if form == "csc":
            elements = sorted(elements, key=lambda element: element[0][::-1])
        return elements
    if form == "csr":
        return sorted(elements, key=lambda element: element[0][0])
    if form == "csc":
        return sorted(elements, key=lambda element: element[0][1])
    return elements


def dense(elements, shape, dtype):
    made = np.zeros(shape, dtype_of(dtype))
    for place, value in summed(elements, dtype):
        made[place] = value
    return made
