"""`ferry.sparse`: converts sparse tensors between frameworks, and to dense tensors.

`ferry.sparse.to(x, "torch", format="csr")` converts a sparse tensor of SciPy (csr, csc, coo, bsr),
PyTorch (coo, csr, csc, bsr), CuPy (csr, csc, coo), JAX (BCOO, BCSR), TensorFlow
(`tf.sparse.SparseTensor`) or the package `sparse` (`sparse.COO`) to any other of them; `to_dense`
makes a dense tensor. Without options, `ferry.to` does the same as `to`. The index and value arrays
are shared if both formats store them in the same way. If the target needs another order, another
index type or unique elements, they are converted, and `plan` says so beforehand.

Indices are validated before they are passed to a framework that does not validate them.
"""

from types import ModuleType
from typing import Any

from tensorferry._native import Plan, _sparse_plan, _sparse_to, _sparse_to_dense
from tensorferry.sparse.frameworks import sparse_framework_of

__all__ = ["is_sparse", "plan", "to", "to_dense"]


def is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse tensor of a supported framework.

    Depends on the type of `x` (and, for PyTorch, on its layout), and imports nothing. It is also
    true for formats that `to` refuses, such as SciPy's dia, so that the error can name them.

    Args:
        x: Any object.

    Returns:
        True for a sparse tensor.

    Example:
        >>> import scipy.sparse
        >>> ferry.sparse.is_sparse(scipy.sparse.eye_array(3)), ferry.sparse.is_sparse(np.eye(3))
        (True, False)
    """
    return sparse_framework_of(x) is not None


def to(
    x: Any,
    framework: str | ModuleType,
    *,
    format: str | None = None,
    blocksize: tuple[int, int] | None = None,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
) -> Any:
    """Converts a sparse tensor, or the sparse tensors of a tree, to a framework.

    Args:
        x: A sparse tensor, or a tree; `ferry.to` converts the dense tensors of a tree.
        framework: "scipy", "torch", "cupy", "jax", "tensorflow", "sparse", or one of their modules.
        format: "coo", "csr", "csc" or "bsr"; by default the source's format, or the nearest one
            that the target supports: coo for csc, csr for bsr. SciPy results are arrays, or
            matrices if the source is a SciPy matrix or the format is "csr_matrix".
        blocksize: The block size, if another format is converted to bsr.
        device: The device of the result, as for `ferry.to`.
        dtype: The element type of the values; indices keep the source's type if the target
            supports it. Duplicates that the target does not keep are summed in the source's type.
        copy: None shares each array that can be shared, True copies all, False raises
            CopyRequiredError unless all can be shared.
        writable: True gives arrays that may be written, as for `ferry.to`.
        stream: The stream on which you will use the result, as for `ferry.to`.

    Returns:
        A sparse tensor of the framework. Explicit zeros are kept; order and duplicates are kept if
        the target supports them. If nothing needs to change, `x` itself.

    Raises:
        NotATensorError: `x` has no sparse tensor.
        CopyRequiredError: `copy=False` was given, and an array cannot be shared.
        InvalidArgumentError: The framework has no sparse tensors, or not that format.
        InvalidTensorError: The indices are out of range or not in order.

    Example:
        >>> import scipy.sparse
        >>> s = scipy.sparse.eye_array(3).tocsr()
        >>> ferry.sparse.to(s, "torch", format="coo").layout
        torch.sparse_coo
    """
    return _sparse_to(x, framework, format, blocksize, device, dtype, copy, writable, stream)


def to_dense(
    x: Any,
    framework: str | ModuleType,
    *,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
) -> Any:
    """Makes the dense tensor of a sparse tensor, or of the sparse tensors of a tree.

    The dense tensor is filled on the device of the result; duplicates are summed in the source's
    type.

    Args:
        x: A sparse tensor, or a tree; `ferry.to` converts the dense tensors of a tree.
        framework: Any framework of `ferry.to`.
        device: The device of the result, as for `ferry.to`.
        dtype: The element type of the result.
        copy: False raises CopyRequiredError, because a dense tensor always needs new memory.
        writable: As for `ferry.to`.
        stream: The stream on which you will use the result, as for `ferry.to`.

    Returns:
        A dense tensor of the framework.

    Raises:
        NotATensorError: `x` has no sparse tensor.
        InvalidArgumentError: The framework has no dense tensors.
        InvalidTensorError: The indices are out of range or not in order.
        OutOfMemoryError: The dense tensor needs more memory than is available.

    Example:
        >>> import scipy.sparse
        >>> s = scipy.sparse.eye_array(2).tocsr()
        >>> ferry.sparse.to_dense(s, "torch").tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return _sparse_to_dense(x, framework, device, dtype, copy, writable, stream)


def plan(
    x: Any,
    framework: str | ModuleType,
    *,
    format: str | None = None,
    blocksize: tuple[int, int] | None = None,
    dense: bool = False,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    stream: Any = None,
) -> Plan:
    """Explains what `to` or `to_dense` would do with the same arguments.

    No tensor is converted, but the indices are read, because the plan depends on their order.

    Args:
        x: A sparse tensor.
        framework: The target, as for `to`.
        format: As for `to`.
        blocksize: As for `to`.
        dense: True plans `to_dense` instead of `to`.
        device: As for `to`.
        dtype: As for `to`.
        copy: As for `to`.
        writable: As for `to`.
        stream: As for `to`.

    Returns:
        A Plan with a part for each array. It prints as an explanation: which arrays are shared,
        which are copied and why, and what is sorted.

    Raises:
        NotATensorError: `x` is not a sparse tensor.
        FerryError: The error that `to` or `to_dense` would raise.

    Example:
        >>> import scipy.sparse
        >>> s = scipy.sparse.eye_array(3).tocsr()
        >>> ferry.sparse.plan(s, "torch").shares
        True
    """
    return _sparse_plan(
        x, framework, format, blocksize, dense, device, dtype, copy, writable, stream
    )
