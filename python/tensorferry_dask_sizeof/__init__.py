"""Memory sizes of tensors for Dask, registered by an entry point of the group `dask.sizeof`.

Dask loads the entry point while `import dask` runs and does not guard the import of its module: an
error here would break Dask for everybody who has tensorferry installed. This package therefore lies
outside `tensorferry`, whose import loads a native module, and uses the standard library alone.

`register` does not import a framework either. Dask calls the function of a framework's module when
it meets the first object whose type was defined there.

The size is that of the logical tensor: shape times item size. A view counts its own bytes and not
those of the memory that it is a view of, and an axis of stride 0, which `expand` and `broadcast_to`
make, counts once, as Dask counts both for NumPy. Memory of a GPU counts like that of the host.
"""

from __future__ import annotations

import math
import sys
from typing import Any

__all__ = ["register"]


def register(sizeof: Any) -> None:
    """Registers the sizes of tensors with `dask.sizeof.sizeof`, lazily for each framework."""
    for module, register_types in _LAZY.items():
        sizeof.register_lazy(module, lambda types=register_types: types(sizeof))


def _register_torch(sizeof: Any) -> None:
    import torch

    sizeof.register(torch.Tensor, _sizeof_torch)


def _register_jax(sizeof: Any) -> None:
    import jax

    sizeof.register(jax.Array, _sizeof_nbytes)
    # In older versions the class of arrays does not inherit from `jax.Array`.
    array_type = getattr(sys.modules.get("jax._src.array"), "ArrayImpl", None)
    if array_type is not None:
        sizeof.register(array_type, _sizeof_nbytes)


def _register_tensorflow(sizeof: Any) -> None:
    import tensorflow as tf

    sizeof.register((tf.Tensor, tf.Variable), _sizeof_tensorflow)
    sizeof.register(tf.SparseTensor, _sizeof_sparse_tensorflow)


def _register_paddle(sizeof: Any) -> None:
    import paddle

    sizeof.register(paddle.Tensor, _sizeof_paddle)


def _register_mlx(sizeof: Any) -> None:
    import mlx.core

    sizeof.register(mlx.core.array, _sizeof_nbytes)


_LAZY = {
    "torch": _register_torch,
    # The type of JAX's arrays is defined in jaxlib, and its base class in jax.
    "jax": _register_jax,
    "jaxlib": _register_jax,
    "tensorflow": _register_tensorflow,
    "paddle": _register_paddle,
    "mlx": _register_mlx,
}


def _elements(shape: Any, strides: Any) -> int:
    """The number of elements that lie in memory: those of axes whose stride is not 0."""
    if 0 in shape:
        return 0
    return math.prod(length for length, stride in zip(shape, strides, strict=True) if stride != 0)


def _sizeof_nbytes(x: Any) -> int:
    return int(x.nbytes)


def _sizeof_torch(x: Any) -> int:
    import torch

    if x.is_meta:
        return sys.getsizeof(x)
    if x.is_nested:
        return sum(_sizeof_torch(part) for part in x.unbind())
    if x.layout is torch.strided:
        return _elements(x.shape, x.stride()) * int(x.element_size())
    parts: tuple[Any, ...]
    if x.layout is torch.sparse_coo:
        parts = (x._indices(), x._values())
    elif x.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (x.crow_indices(), x.col_indices(), x.values())
    elif x.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = (x.ccol_indices(), x.row_indices(), x.values())
    else:
        # Layouts without strides, such as that of oneDNN, which are dense.
        return int(x.numel() * x.element_size())
    return sum(_sizeof_torch(part) for part in parts)


def _sizeof_tensorflow(x: Any) -> int:
    elements = x.shape.num_elements()
    # A symbolic tensor has no memory, and strings and handles of resources have no fixed size.
    if elements is None or not (x.dtype.is_bool or _is_number(x.dtype)):
        return sys.getsizeof(x)
    return int(elements) * int(x.dtype.size)


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_quantized)


def _sizeof_sparse_tensorflow(x: Any) -> int:
    return sum(_sizeof_tensorflow(part) for part in (x.indices, x.values, x.dense_shape))


def _sizeof_paddle(x: Any) -> int:
    if x.is_sparse_coo():
        return _sizeof_paddle(x.indices()) + _sizeof_paddle(x.values())
    if x.is_sparse_csr():
        return sum(_sizeof_paddle(part) for part in (x.crows(), x.cols(), x.values()))
    return _elements(x.shape, x.strides) * int(x.element_size())
