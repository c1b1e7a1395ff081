"""The components of a sparse tensor, which the functions `read` return.

The native module reads the fields by position, decides what happens to the arrays, and converts
them.
"""

from typing import Any, NamedTuple


class SparseComponents(NamedTuple):
    """The arrays of a sparse tensor, and their properties.

    Axes are in the order batch, sparse, dense. Values have the batch axes first and the dense axes
    last.
    """

    #: "coo", "csr", "csc" or "bsr".
    format: str
    #: The framework's name of the format; "csr_matrix" for a SciPy matrix.
    name: str
    shape: tuple[int, ...]
    values: Any
    #: Pointers and indices, or coordinates.
    arrays: tuple[Any, ...]
    #: The layout of coordinates: "axes" is one matrix with a row for each axis, "points" one matrix
    #: with a row for each element, "separate" an array for each axis.
    layout: str = "separate"
    blocksize: tuple[int, int] | None = None
    batch_axes: int = 0
    dense_axes: int = 0
    #: Whether elements beyond the shape are padding.
    is_padded: bool = False
    #: Whether the arrays must not be written, although the framework allows it.
    is_read_only: bool = False
    #: Whether the tensor required a gradient.
    is_detached: bool = False
    #: The order of the elements of a batch, which is not validated.
    in_order: bool = False
    unique: bool = False
