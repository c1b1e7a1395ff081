"""Sparse tensors as bundles of shared arrays.

`carry(x, "torch")` takes a sparse tensor of SciPy (csr, csc, coo, bsr), PyTorch (coo, csr, csc,
bsr), CuPy (csr, csc, coo), JAX (BCOO, BCSR), TensorFlow (`tf.sparse.SparseTensor`) or the package
`sparse` (`sparse.COO`) to any other of them. The arrays that it is made of go by `ferry.to`, one by
one: they are shared where both formats keep them alike. Where the target asks for another order,
another index type or each place only once, that is done, and `plan` says so beforehand.

Nothing is trusted: indices are looked through before their memory is handed to a framework that
would not look.
"""

from types import ModuleType
from typing import Any

from tensorferry._native import InvalidArgumentError
from tensorferry.sparse import plain
from tensorferry.sparse.dense import Dense
from tensorferry.sparse.frameworks import owner
from tensorferry.sparse.route import Route, Wishes, decide
from tensorferry.sparse.words import PartPlan, SparsePlan

NOTHING = (None,) * 6

__all__ = ["PartPlan", "SparsePlan", "carry", "is_sparse", "plan"]


def is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse tensor of a framework that is known here.

    Goes by the type of `x` (and, for PyTorch, by its layout), and imports nothing. It is true for
    formats that `carry` refuses too, such as SciPy's dia, so that the refusal can name them.
    """
    return owner(x) is not None


def carry(
    x: Any,
    framework: str | ModuleType,
    *,
    format: str | None = None,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    dense: bool = False,
    blocksize: tuple[int, int] | None = None,
    stream: Any = None,
) -> Any:
    """Carries a sparse tensor to a framework.

    Args:
        x: A sparse tensor.
        framework: Whose it becomes: "scipy" (or "numpy"), "torch", "cupy", "jax", "tensorflow",
            "sparse", or one of their modules. With `dense=True`, any framework of `ferry.to`.
        format: "coo", "csr", "csc" or "bsr"; the source's own if left out, or the nearest that the
            target has: coo for csc, csr for bsr. SciPy makes arrays, or matrices if the source is
            one of its matrices or "csr_matrix" is written.
        device: Where the result shall be, as for `ferry.to`.
        dtype: The element type of the values; indices have the source's type where the target can
            take it.
        copy: None shares each part that can be shared, True copies them all, False raises
            CopyRequiredError unless all can be shared.
        writable: True gives parts that may be written without harm to anyone.
        dense: Whether to make the dense tensor instead: packed once, on the device where it is to
            be, with repeats summed in the source's type.
        blocksize: The size of blocks, where bsr is made of another format.
        stream: The stream on which you will use the result, as for `ferry.to`.

    Returns:
        A sparse tensor of the framework. Stored zeros stay; order and repeats stay where the target
        lets them. Same framework and nothing to change: `x` itself.
    """
    wished = (device, dtype, copy, writable, blocksize, stream)
    if wished == NOTHING:
        made = None
        if not dense:
            made = plain.carry(x, framework, format)
        elif format is None:
            made = plain.dense(x, framework)
        if made is not None:
            return made
    wishes = Wishes(device, dtype, copy, writable, stream)
    return _way(x, framework, format, wishes, dense, blocksize).run()


def plan(
    x: Any,
    framework: str | ModuleType,
    *,
    format: str | None = None,
    device: Any = None,
    dtype: Any = None,
    copy: bool | None = None,
    writable: bool | None = None,
    dense: bool = False,
    blocksize: tuple[int, int] | None = None,
    stream: Any = None,
) -> SparsePlan:
    """Says what `carry` would do with the same arguments, and why.

    Nothing moves, but the indices are read: whether they are in order decides what must be done.

    Args:
        x: A sparse tensor.
        framework: Whose it would become.
        format: As for `carry`.
        device: As for `carry`.
        dtype: As for `carry`.
        copy: As for `carry`.
        writable: As for `carry`.
        dense: As for `carry`.
        blocksize: As for `carry`.
        stream: As for `carry`.

    Returns:
        A SparsePlan, which prints as an explanation: which parts are shared, which are copied and
        why, and what is brought into order.
    """
    wishes = Wishes(device, dtype, copy, writable, stream)
    return _way(x, framework, format, wishes, dense, blocksize).plan


def _way(
    x: Any,
    framework: str | ModuleType,
    format: str | None,
    wishes: Wishes,
    dense: bool,
    blocksize: tuple[int, int] | None,
) -> Route | Dense:
    if not dense:
        return decide(x, framework, wishes, format=format, blocksize=blocksize)
    if format is not None or blocksize is not None:
        raise InvalidArgumentError(
            "a dense tensor has no sparse format"
            "\nhint: leave out format and blocksize, or leave out dense=True"
        )
    return Dense(x, framework, wishes)
